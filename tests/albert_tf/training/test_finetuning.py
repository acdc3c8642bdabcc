"""Fine-tuning: what it starts from, what it leaves, interrupted or not, and what it refuses."""

import csv
import dataclasses
import json
import shutil
import statistics

import numpy as np
import pytest

from albert_tf import run_finetuning
from albert_tf.checkpoints import save_huggingface, save_official
from albert_tf.checkpoints.formats import load_keras
from albert_tf.checkpoints.variables import named_variables
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading import load
from albert_tf.model_files import load_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning, loop
from albert_tf.training.batches import predict
from albert_tf.training.devices import Devices
from albert_tf.training.preparation import prepare
from albert_tf.training.start import copy_weights, load_start, needed_tokenizer
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")

WORDS = ("the class is a value", "an expression returns", "a loop of statements and names", "it raises")


def write_classes(folder, rows=40):
    """Sentences of the pre-training text's words; the class is whether there is a "good" in it."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        text = " ".join(random.permutation([WORDS[number % 4], ("good" if number % 2 else "bad"), "object"]))
        lines.append(f"{text}\t{'yes' if number % 2 else 'no'}")
    for split, part in (("train", lines[:-8]), ("dev", lines[-8:])):
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    (folder / "test.tsv").write_text("text\na good value\nbad\n")


@pytest.fixture(scope="module")
def class_settings(tmp_path_factory, tiny_run):
    folder = tmp_path_factory.mktemp("classes")
    write_classes(folder)
    return FinetuningSettings(
        task="classification", data_dir=str(folder), init_from=str(tiny_run), output_dir=str(folder / "run"),
        learning_rate=1e-3, train_batch_size=8, num_train_steps=5, save_checkpoints_steps=2, albert_dropout=0.1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finetuned(class_settings):
    return finetuning.finetune(class_settings)


def history(folder):
    return list(csv.DictReader((folder / "history.csv").read_text().splitlines()))


def weights(folder):
    return load_keras(folder / "last.keras", compile=True).get_weights()


def test_the_folder_holds_what_serving_and_later_stages_need(finetuned):
    loaded = load(finetuned)
    model, tokenizer = loaded.model, loaded.tokenizer
    assert type(model).__name__ == "AlbertClassifier" and tokenizer.vocab_size == 500
    task = load_task(finetuned)
    best = max(history(finetuned), key=lambda row: float(row["dev_accuracy"]))
    assert task | {"metrics": None} == {
        "task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"],
        "max_seq_length": 48, "null_threshold": None, "metrics": None,
    }  # fmt: skip
    assert task["metrics"]["accuracy"] == pytest.approx(float(best["dev_accuracy"]), abs=1e-6)
    assert load_task(finetuned / "model.keras") == task and load_task(finetuned / "tensorboard") is None
    assert [row["step"] for row in history(finetuned)] == ["2", "4", "5"]


def test_predictions_are_the_kept_models(finetuned, class_settings):
    rows = list(csv.DictReader((finetuned / "predictions" / "dev.tsv").open(), delimiter="\t"))
    right = np.mean([row["prediction"] == row["label"] for row in rows])
    assert len(rows) == 8 and right == load_task(finetuned)["metrics"]["accuracy"]
    run = prepare(class_settings)
    outputs = predict(load_keras(finetuned / "model.keras"), run.evaluation[0].rows, 3, 48)
    logits = [[float(row["logit:no"]), float(row["logit:yes"])] for row in rows]
    np.testing.assert_allclose(logits, outputs, atol=1e-6)
    test = list(csv.DictReader((finetuned / "predictions" / "test.tsv").open(), delimiter="\t"))
    assert len(test) == 2 and "label" not in test[0] and test[0]["prediction"] in ("no", "yes")


@pytest.mark.slow
def test_a_run_that_gets_no_better_stops_early_and_stays_stopped(class_settings, tmp_path, capsys):
    run, changes = str(tmp_path / "run"), dict(learning_rate=1e-12, early_stopping=1, class_weights="no=0,yes=2")
    settings = dataclasses.replace(class_settings, output_dir=run, **changes)
    finetuning.finetune(settings)
    assert [row["step"] for row in history(tmp_path / "run")] == ["2", "4"]
    assert "no better dev_accuracy in 1 evaluations: stopped early" in capsys.readouterr().out
    finetuning.finetune(settings)
    assert "is trained already (4 steps)" in capsys.readouterr().out
    (tmp_path / "data").mkdir()
    rows = "\n".join(f"word {number}\t{'yes' if number % 2 else 'no'}" for number in range(8))
    (tmp_path / "data" / "train.tsv").write_text(f"text\tlabel\n{rows}\n")
    with pytest.raises(UserError, match="--early_stopping needs a dev file"):
        prepare(dataclasses.replace(settings, data_dir=str(tmp_path / "data")))


def test_killed_and_resumed_equals_uninterrupted(class_settings, finetuned, tmp_path, monkeypatch):
    settings = dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"))

    step = loop.Report.step

    class Killed(BaseException):
        pass

    def die_in_the_fourth_step(self, *arguments):
        if self.bar.n == 3:
            raise Killed
        step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Report, "step", die_in_the_fourth_step)
        with pytest.raises(Killed):
            finetuning.finetune(settings)
    assert int(load_keras(tmp_path / "run" / "last.keras", compile=True).optimizer.iterations) == 2
    finetuning.finetune(settings)
    for resumed, straight in zip(weights(tmp_path / "run"), weights(finetuned), strict=True):
        np.testing.assert_array_equal(resumed, straight)
    columns = ("step", "loss", "dev_accuracy")
    assert [[row[name] for name in columns] for row in history(tmp_path / "run")] == [
        [row[name] for name in columns] for row in history(finetuned)
    ]
    for name in ("predictions/dev.tsv", "task.json"):
        assert (tmp_path / "run" / name).read_text() == (finetuned / name).read_text()


def test_a_finished_run_is_left_alone_but_answers_new_files(class_settings, finetuned, tmp_path, capsys):
    data, folder = tmp_path / "data", tmp_path / "run"
    shutil.copytree(class_settings.data_dir, data, ignore=shutil.ignore_patterns("run"))
    shutil.copytree(finetuned, folder)
    before = (folder / "last.keras").stat().st_mtime_ns
    (data / "test.tsv").write_text("text\n" + "good\n" * 5)
    finetuning.finetune(dataclasses.replace(class_settings, data_dir=str(data), output_dir=str(folder)))
    assert "trained already" in capsys.readouterr().out
    assert (folder / "last.keras").stat().st_mtime_ns == before
    assert len((folder / "predictions" / "test.tsv").read_text().splitlines()) == 6


def test_another_run_is_refused_in_a_folder_that_has_one(class_settings, finetuned, tmp_path):
    with pytest.raises(UserError, match=r"learning_rate=0\.001 \(now 0\.002\).*another --output_dir"):
        finetuning.finetune(dataclasses.replace(class_settings, learning_rate=0.002))
    write_classes(tmp_path, rows=42)
    with pytest.raises(UserError, match=r"train_sha256="):
        finetuning.finetune(dataclasses.replace(class_settings, data_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sst3"}, "--task=sst3 is unknown"),
        ({"data_dir": "nowhere"}, "holds no train file"),
        ({"task": "rte"}, "holds no training file|no column"),
        ({"init_from": "nowhere"}, "nowhere"),
        ({"init_from": "", "config": "albert_huge"}, "albert_huge|--tokenizer"),
        ({"config": "albert_base_v2"}, "--init_from=... to start from trained weights, or --config"),
        ({"max_seq_length": 100}, "--max_seq_length=100 is more than the 48 tokens"),
        ({"num_warmup_steps": 5}, "--num_warmup_steps=5 must be below the 5 steps"),
        ({"num_train_epochs": 2.0}, "exclude each other"),
        ({"learning_rate": -1.0}, "--learning_rate=-1.0 must be 0 or more"),
        ({"albert_dropout": 1.0}, "--albert_dropout=1.0"),
        ({"dtype_policy": "float7"}, "float7"),
        ({"seeds": "3,3"}, "--seeds=3,3"),
        ({"seeds": "0"}, "--seeds=0"),
        ({"text_column": "sentence"}, "no column 'sentence'; it has 'text', 'label'"),
        ({"output_dir": "/proc/nowhere"}, "/proc/nowhere"),
        ({"max_seq_length": 2}, "--max_seq_length=2"),
        ({"seed": -1}, "--seed=-1 must be from 0 to 4294967295"),
        ({"seeds": "1,4294967296"}, "--seeds=1,4294967296"),
        ({"temperature": 3.0}, "--temperature=3.0 is for --teacher; leave it out"),
        ({"early_exit": True, "exit_beta": 0.1}, "--exit_beta=0.1 is for --learned_exit; leave it out"),
    ],
)
def test_what_cannot_be_run_is_named_and_leaves_nothing(class_settings, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        finetuning.finetune(dataclasses.replace(class_settings, **({"output_dir": str(tmp_path / "run")} | change)))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_several_seeds_and_their_spread(class_settings, finetuned, tmp_path, capsys):
    settings = dataclasses.replace(class_settings, output_dir=str(tmp_path), seeds="0,7")
    finetuning.finetune(settings)
    # The first of several is the run that it would be alone.
    for several, alone in zip(weights(tmp_path / "seed-0"), weights(finetuned), strict=True):
        np.testing.assert_array_equal(several, alone)
    assert any((a != b).any() for a, b in zip(weights(tmp_path / "seed-7"), weights(tmp_path / "seed-0")))
    summary = json.loads((tmp_path / "summary.json").read_text())
    values = [load_task(tmp_path / f"seed-{seed}")["metrics"]["accuracy"] for seed in (0, 7)]
    figures = summary["metrics"]["accuracy"]
    assert figures["values"] == values and figures["median"] == statistics.median(values)
    assert figures["standard_deviation"] == pytest.approx(statistics.stdev(values))
    assert f"accuracy: median {statistics.median(values):.4g} of 2 seeds" in capsys.readouterr().out
    best = tmp_path / f"seed-{summary['best_seed']}"
    assert load_task(best)["metrics"]["accuracy"] == max(values)
    assert (tmp_path / "model.keras").read_bytes() == (best / "model.keras").read_bytes()
    load(tmp_path)


def test_one_seeds_run_and_several_seeds_do_not_share_a_folder(class_settings, finetuned, tmp_path):
    several = dataclasses.replace(class_settings, output_dir=str(finetuned), seeds="0,7")
    before = (finetuned / "model.keras").read_bytes()
    with pytest.raises(UserError, match="holds the run of one seed, which would lose its model"):
        finetuning.finetune(several)
    assert (finetuned / "model.keras").read_bytes() == before and not list(finetuned.glob("seed-*"))
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(UserError, match="holds the runs of several seeds; give their --seeds"):
        finetuning.finetune(dataclasses.replace(class_settings, output_dir=str(tmp_path)))


@pytest.mark.parametrize("seeds", ["", "0,7"])
def test_a_dry_run_meets_another_run_as_the_real_one_does(class_settings, finetuned, tmp_path, seeds):
    folder = tmp_path / "seed-7" if seeds else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "last.keras").touch()
    shutil.copyfile(finetuned / "run.json", folder / "run.json")
    before = (folder / "run.json").stat().st_mtime_ns
    settings = dataclasses.replace(class_settings, output_dir=str(tmp_path), seeds=seeds, learning_rate=0.002)
    with pytest.raises(UserError, match=r"learning_rate=0\.001 \(now 0\.002\).*another --output_dir"):
        finetuning.finetune(dataclasses.replace(settings, dryrun=True))
    assert (folder / "run.json").stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["last.keras", "run.json"]


def test_a_dry_run_walks_and_leaves_nothing(class_settings, finetuned, capsys):
    """It goes where the real run could, as into the folder of the same run, and leaves that as it is."""
    before = {path: path.stat().st_mtime_ns for path in finetuned.rglob("*") if path.is_file()}
    finetuning.finetune(dataclasses.replace(class_settings, dryrun=True))
    out = capsys.readouterr().out
    assert "dry run: everything worked" in out and "wrote" not in out
    assert {path: path.stat().st_mtime_ns for path in finetuned.rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match="cannot write to output folder '/proc/nowhere'"):
        finetuning.finetune(dataclasses.replace(class_settings, dryrun=True, output_dir="/proc/nowhere"))


@pytest.mark.slow
def test_it_learns_from_scratch_and_keeps_the_first_of_the_best(class_settings, tiny_settings, tiny_run, tmp_path):
    config = json.loads((tiny_run / "config.json").read_text()) | {"initializer_range": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = dataclasses.replace(
        class_settings, init_from="", config=str(tmp_path / "config.json"), tokenizer=str(tiny_run), albert_dropout=0.0,
        output_dir=str(tmp_path), num_train_steps=60, num_warmup_steps=9, learning_rate=5e-3, save_checkpoints_steps=30,
    )  # fmt: skip
    finetuning.finetune(settings)
    assert [row["dev_accuracy"] for row in history(tmp_path)] == ["1", "1"]
    assert load_task(tmp_path)["metrics"]["accuracy"] == 1.0
    # The second evaluation was no better: its model is in last.keras only.
    kept, last = load_keras(tmp_path / "model.keras"), load_keras(tmp_path / "last.keras", compile=True)
    assert any((a != b).any() for a, b in zip(kept.get_weights(), last.get_weights(), strict=True))


def write_other_task(folder, name):
    if name == "tagging":
        rows = [{"text": ["the", "class", "runs"], "label": ["O", "B-X", "O"]}] * 9
        for split in ("train", "dev"):
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "race":
        row = {"article": "a class " * 9, "questions": ["what _"], "options": [["a", "b", "c", "d"]], "answers": ["B"]}
        for path in ("train/middle", "dev/high", "test/high"):
            (folder / path).mkdir(parents=True)
            for number in range(4):
                (folder / path / f"{number}.txt").write_text(json.dumps(row))
    else:
        rows = "".join(f"the class\ta loop {i}\t{i / 2}\n" for i in range(9))
        for split in ("train", "dev"):
            (folder / f"{split}.tsv").write_text("text\tother\tlabel\n" + rows)


@pytest.mark.parametrize(
    ("name", "changes", "model", "metric"),
    [
        ("tagging", {"learned_exit": True}, "AlbertTokenClassifier", "f1"),
        ("race", {}, "AlbertMultipleChoice", "high_accuracy"),
        ("regression", {"second_text_column": "other", "early_exit": True}, "AlbertRegressor", "pearson"),
    ],
)
@pytest.mark.few(1)
def test_other_kinds_of_task(class_settings, tmp_path, name, changes, model, metric):
    write_other_task(tmp_path, name)
    settings = dataclasses.replace(
        class_settings, task=name, data_dir=str(tmp_path), output_dir=str(tmp_path / "run"), train_batch_size=4,
        num_train_steps=2, **changes,
    )  # fmt: skip
    folder = finetuning.finetune(settings)
    loaded = load(folder).model
    task = load_task(folder)
    kind = {"race": "multiple_choice"}.get(name, name)
    assert type(loaded).__name__ == model and task["kind"] == kind and metric in task["metrics"]
    assert bool(getattr(loaded, "exit_heads", [])) == bool({"early_exit", "learned_exit"} & changes.keys())
    assert bool(getattr(loaded, "exit_gate", None)) == ("learned_exit" in changes)
    assert any((folder / "predictions").iterdir())


def test_early_exit_of_a_task_without_is_refused(class_settings, tmp_path):
    write_other_task(tmp_path, "race")
    settings = dataclasses.replace(class_settings, task="race", output_dir=str(tmp_path / "run"))
    for flag in ("early_exit", "learned_exit"):
        with pytest.raises(UserError, match=f"--{flag} is for"):
            finetuning.finetune(dataclasses.replace(settings, **{flag: True}))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_is_fine_tuned_at_another_depth_and_at_random_ones(class_settings, tiny_run, tmp_path):
    settings = dataclasses.replace(
        class_settings, config="", tokenizer="", init_from=str(tiny_run), depth=3, random_depth_min=2,
        num_train_steps=1, output_dir=str(tmp_path / "run"), max_seq_length=16, max_unknown_share=1.0,
    )  # fmt: skip
    config = load(finetuning.finetune(settings)).model.encoder.config
    assert (config.num_hidden_layers, config.random_depth_min) == (3, 2)
    with pytest.raises(UserError, match="--depth is of the weights"):
        dataclasses.replace(settings, init_from="", config="tiny.json")
    with pytest.raises(UserError, match="leave out --random_depth_min"):
        dataclasses.replace(settings, learned_exit=True)


def test_the_encoder_comes_from_any_head_and_format(tiny_run, finetuned, tmp_path):
    loaded = load(tiny_run)
    pretrained, tokenizer = loaded.model, loaded.tokenizer
    save_official(pretrained, tmp_path / "official")
    save_huggingface(pretrained, tmp_path / "huggingface")
    expected = {name: np.asarray(value) for name, value in named_variables(pretrained.encoder).items()}
    for path in (tiny_run, tiny_run / "last.keras", tmp_path / "official", tmp_path / "huggingface"):
        start = load_start(str(path), "")
        target = AlbertEncoder(start.config.replace(hidden_dropout_prob=0.3))
        assert copy_weights(start.model, target) == []
        for name, value in named_variables(target).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=f"{path} {name}")
    classifier = load(finetuned).model
    source = load_start(str(finetuned), "").model
    np.testing.assert_array_equal(source.encoder.pooler.kernel, classifier.encoder.pooler.kernel)
    official = str(tmp_path / "official")
    with pytest.raises(UserError, match=r"official' holds no tokenizer; give it by --tokenizer"):
        needed_tokenizer(load_start(official, ""), official)
    shutil.copy(tiny_run / "spiece.model", tmp_path / "official" / "30k-clean.model")
    assert load_start(official, "").tokenizer.sha256 == tokenizer.sha256


def test_a_vocabulary_larger_than_the_encoders_is_refused(class_settings, shared, tmp_path):
    settings = dataclasses.replace(
        class_settings, tokenizer=str(shared / "data" / "spm" / "30k-clean.model"), output_dir=str(tmp_path / "run")
    )
    with pytest.raises(UserError, match=r"30000 pieces, the model only 500; they do not belong together"):
        finetuning.finetune(settings)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(class_settings, tmp_path):
    settings = dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"), learning_rate=1e30)
    with pytest.raises(UserError, match=r"the loss is .*learning_rate"):
        finetuning.finetune(settings)
    assert not (tmp_path / "run" / "last.keras").exists()


def test_the_command_ends_bad_input_in_one_line(run_module, tmp_path):
    done = run_module(
        "albert_tf.run_finetuning", "--task=sst2", f"--data_dir={tmp_path}", "--output_dir=x", "--config=x"
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("with_vocabulary", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_it_starts_from_a_cased_folder_of_transformers(tmp_path, class_settings, with_vocabulary):
    """The tokenizer.json of `tokenizers` is no tokenizer.json of ours, and "Hello" no "hello"."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "object", "bad", "Good"]
    pieces += [word for text in WORDS for word in text.split()]
    pieces = list(dict.fromkeys(pieces))
    fast = tokenizers.Tokenizer(tokenizers.models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    fast.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    config = AlbertConfig(
        vocab_size=len(pieces), embedding_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, sharing="none",
    )  # fmt: skip
    save_huggingface(AlbertEncoder(config), tmp_path / "hf")
    fast.save(str(tmp_path / "hf" / "tokenizer.json"))
    if with_vocabulary:
        (tmp_path / "hf" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max_length": 512}')
    settings = dataclasses.replace(
        class_settings, init_from=str(tmp_path / "hf"), output_dir=str(tmp_path / "run"), num_train_steps=1
    )
    tokenizer = load(finetuning.finetune(settings)).tokenizer
    assert not tokenizer.lower_case
    assert tokenizer.encode("Good") == [pieces.index("Good")] and tokenizer.encode("good") == [tokenizer.unk_id]
    assert prepare(dataclasses.replace(settings, lower_case=True)).tokenizer.lower_case


def test_text_that_the_vocabulary_does_not_know_is_refused_unless_told(class_settings, tmp_path):
    write_classes(tmp_path)
    for path in tmp_path.glob("*.tsv"):
        header, *lines = path.read_text().splitlines()
        chinese = [line.replace(line.split("\t")[0], "我们喜欢这本书") for line in lines]
        path.write_text("\n".join([header, *chinese]) + "\n")
    settings = dataclasses.replace(class_settings, data_dir=str(tmp_path), output_dir=str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"% of the training text's tokens are unknown to the tokenizer \(<unk>\)"):
        finetuning.finetune(settings)
    assert prepare(dataclasses.replace(settings, max_unknown_share=1.0)).unknown_share > 0.3
    assert prepare(class_settings).unknown_share < 0.05


def test_a_dry_run_on_many_devices_has_rows_for_each(class_settings, tmp_path, monkeypatch):
    tried = []
    class_settings = dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"))
    monkeypatch.setattr(finetuning.Finetuning, "run", lambda self: tried.append(self.settings.train_batch_size))
    for replicas, rows in ((3, 3), (8, 8)):
        settings = dataclasses.replace(class_settings, dryrun=True, train_batch_size=24)
        finetuning.finetune(settings, devices=Devices(replicas=replicas))
        assert tried.pop() == rows
        with pytest.raises(UserError, match=f"{replicas} devices cannot share a batch of 10 rows"):
            finetuning.finetune(dataclasses.replace(settings, train_batch_size=10), devices=Devices(replicas=replicas))


def test_a_run_that_is_stopped_between_seeds_has_no_model_yet(class_settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(finetuning.Finetuning, "run", lambda self: False)
    settings = dataclasses.replace(class_settings, output_dir=str(tmp_path / "run"), seeds="2")
    assert finetuning.finetune(settings) is None
    run_finetuning.main(settings)
    assert "wrote" not in capsys.readouterr().out


def test_updates_that_are_skipped_again_and_again_end_the_run():
    training = object.__new__(finetuning.Finetuning)
    training.step = 30
    training.check({"loss": 1.0, "skipped": 20})
    with pytest.raises(UserError, match=r"21 updates up to step 30 had gradients that are not finite.*more than 20"):
        training.check({"loss": 1.0, "skipped": 21})
