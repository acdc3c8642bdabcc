"""The whole way on a tiny BERT: what is learned, gone on with, kept and told."""

import dataclasses
import json
import os
import shutil
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder, compress
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.compression import run as running
from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.start import TableRow
from albert_tf.compression.text import make_rows, task_of
from albert_tf.loading import load
from albert_tf.training import loop
from albert_tf.training.devices import Devices
from tests.conftest import ROOT
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["a", "the", "dull", "fine", "film", "was", "play", "actor", "and", "not", "very", "good", "bad", "plot"]
UNREAD = ["zebra", "yak"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *WORDS, *UNREAD, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
CONFIG = AlbertConfig(
    vocab_size=len(PIECES), embedding_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=24, sharing="none", initializer_range=0.3,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer("\n".join(PIECES).encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text, a pair task with numbers, and a task of classes."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def sentence():
        return " ".join(random.choice(WORDS, size=random.integers(3, 9)))

    (folder / "text.txt").write_text("\n".join(sentence() for _ in range(60)) + "\n")
    (folder / "pairs").mkdir()
    (folder / "classes").mkdir()
    for split in ("train", "dev"):
        pairs = [(sentence(), sentence()) for _ in range(40)]
        shared = [len(set(one.split()) & set(two.split())) for one, two in pairs]
        lines = [f"{one}\t{two}\t{number}" for (one, two), number in zip(pairs, shared)]
        (folder / "pairs" / f"{split}.tsv").write_text("text\tother\tlabel\n" + "\n".join(lines) + "\n")
        texts = [sentence() for _ in range(100)]
        lines = [f"{text}\t{'yes' if 'fine' in text else 'no'}" for text in texts]
        (folder / "classes" / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    return folder


def write(folder, model, tokenizer, **task):
    save_keras(model, folder / "model.keras")
    tokenizer.save(folder)
    if task:
        (folder / "task.json").write_text(json.dumps(task))
    return folder


@pytest.fixture(scope="module")
def embedder(tokenizer, tmp_path_factory):
    keras.utils.set_random_seed(3)
    model = AlbertSentenceEmbedder(AlbertEncoder(CONFIG, pooler=False))
    return write(tmp_path_factory.mktemp("embedder"), model, tokenizer)


@pytest.fixture(scope="module")
def settings(embedder, data):
    return CompressSettings(
        model=str(embedder), output_dir="", text=str(data / "text.txt"), embedding_size=8, lora_rank=2, table=False,
        task="regression", data_dir=str(data / "pairs"), second_text_column="other", held_out_rows=16,
        max_seq_length=16, num_train_steps=12, train_batch_size=8, learning_rate=5e-3, save_checkpoints_steps=6,
    )  # fmt: skip


@pytest.fixture(scope="module")
def straight(settings, tmp_path_factory, request):
    return running.run(dataclasses.replace(settings, output_dir=str(tmp_path_factory.mktemp("straight"))))


def report_of(folder):
    return json.loads((folder / "compress.json").read_text())


def test_an_ordinary_model_folder_and_its_report(straight, settings):
    loaded = load(straight)
    config = loaded.model.encoder.config
    assert (config.embedding_size, config.depth_plan, config.depth_lora_rank) == (8, "1x2", 2)
    assert loaded.predict(["a fine film"]).shape == (1, 16)
    report = report_of(straight)
    assert report["measured"] == "regression spearman by cosine"
    assert report["parameters"]["compressed"] == loaded.model.count_params() < report["parameters"]["as it is"]
    assert report["table"][0]["scores"]["likeness"] == pytest.approx(1)
    start, end = (report["phases"][name]["scores"]["likeness"] for name in ("start", "text"))
    assert end > start
    page = (straight / "compress.html").read_text()
    assert "<img" in page and "distilled on text" in page
    assert not list((straight / "text_phase").glob("taught.*"))


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(settings, straight, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "run"))
    step, count = loop.Report.step, iter(range(1, 100))

    def stopped(*arguments, **options):
        if next(count) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Report, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            running.run(settings)
    assert not (tmp_path / "run" / "model.keras").exists()
    # What the teacher said is found again.
    assert list((tmp_path / "run" / "text_phase").glob("taught.*"))
    running.run(settings)
    one, other = (load_keras(folder).get_weights() for folder in (straight, tmp_path / "run"))
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second)


def test_another_run_does_not_go_into_its_folder(settings, straight):
    with pytest.raises(UserError, match=r"holds a run with .*learning_rate"):
        running.run(dataclasses.replace(settings, output_dir=str(straight), learning_rate=1.0))


@pytest.mark.slow
def test_what_the_teacher_says_on_disk_is_what_it_says(settings, straight, tmp_path):
    """Kept states are float16; the steps differ by no more."""
    live = running.run(dataclasses.replace(settings, output_dir=str(tmp_path), cache_gb=0.0))
    one, other = (report_of(folder)["phases"]["text"]["scores"]["likeness"] for folder in (straight, live))
    assert one == pytest.approx(other, abs=2e-3)


@pytest.mark.slow
def test_fewer_pieces_and_a_learned_map(settings, tokenizer, tmp_path):
    folder = running.run(
        dataclasses.replace(settings, output_dir=str(tmp_path), vocab_from="corpus", map_states=True, block="best")
    )
    loaded = load(folder)
    assert not set(UNREAD) & set(loaded.tokenizer.pieces) and set(WORDS) <= set(loaded.tokenizer.pieces)
    assert loaded.model.encoder.config.vocab_size == loaded.tokenizer.vocab_size < len(PIECES)
    titles = [row["title"] for row in report_of(folder)["table"]]
    assert titles[1] == f"vocabulary of {loaded.tokenizer.vocab_size} pieces"


@pytest.mark.slow
def test_words_and_relations_of_a_pretrained_model(settings, data, tokenizer, tmp_path):
    teacher = write(tmp_path, AlbertPretrainer(AlbertEncoder(CONFIG, seed=2), pair_task="nsp"), tokenizer)
    folder = running.run(
        dataclasses.replace(
            settings, model=str(teacher), output_dir=str(tmp_path / "out"), task="", data_dir="",
            relations_weight=1.0, num_train_steps=3, save_checkpoints_steps=3,
        )
    )  # fmt: skip
    assert isinstance(load(folder).model, AlbertPretrainer)
    history = (folder / "text_phase" / "history.csv").read_text()
    assert "relations,words" in history.splitlines()[0]
    assert report_of(folder)["measured"] == "likeness"


@pytest.fixture
def tuned(settings, data, tokenizer, tmp_path):
    """Settings for a model that was fine-tuned."""
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 2, labels=["no", "yes"])
    task = {"task": "classification", "kind": "classification", "labels": ["no", "yes"], "inputs": ["text"]}
    (tmp_path / "teacher").mkdir()
    teacher = write(tmp_path / "teacher", model, tokenizer, **task, max_seq_length=16, metrics={"accuracy": 0.123})
    return dataclasses.replace(
        settings, model=str(teacher), output_dir=str(tmp_path / "out"), task="classification", text="",
        data_dir=str(data / "classes"), second_text_column="", held_out_rows=16, num_train_steps=2, task_train_steps=2,
        vocab_from="corpus",
    )  # fmt: skip


def test_a_fine_tuned_model_goes_through_both_phases(tuned, capsys):
    # Of so small a rate the second phase changes next to nothing: it goes on with all of the first one's model.
    compress.main(dataclasses.replace(tuned, task_learning_rate=1e-9))
    folder = Path(tuned.output_dir)
    assert isinstance(load(folder).model, AlbertClassifier)
    phases = report_of(folder)["phases"]
    assert list(phases) == ["start", "text", "task"]
    assert phases["task"]["scores"] == pytest.approx(phases["text"]["scores"], abs=1e-5)
    text, task = (load_keras(folder / phase) for phase in (running.TEXT_PHASE, running.TASK_PHASE))
    np.testing.assert_allclose(task.head.kernel, text.head.kernel, atol=1e-6)
    np.testing.assert_allclose(load_keras(folder).head.kernel, task.head.kernel)
    # Its own, not the whole model's.
    for place in (folder, folder / running.TEXT_PHASE):
        metrics = json.loads((place / "task.json").read_text())["metrics"]
        assert metrics["accuracy"] == pytest.approx(phases["task"]["scores"]["accuracy"])
    said = capsys.readouterr()
    assert f"wrote {folder}/model.keras" in said.out and "next: python -m serving.export" in said.err


def test_the_first_phase_is_not_gone_through_again(tuned, capsys):
    """The head, which no lesson reaches, learns as little in the model that is loaded."""
    settings = dataclasses.replace(tuned, task_train_steps=1)
    first = running.run(settings)
    before = (first / running.TEXT_PHASE / "history.csv").read_text()
    capsys.readouterr()
    running.run(settings)
    assert f"{first / running.TEXT_PHASE} is trained already (2 steps)" in capsys.readouterr().out
    assert (first / running.TEXT_PHASE / "history.csv").read_text() == before


@pytest.mark.parametrize("text_is_better", [True, False])
def test_of_the_phases_models_the_better_is_kept(tuned, tmp_path, monkeypatch, text_is_better, capsys):
    work, folder = running.prepare(tuned), tmp_path / "out"
    (folder / running.TASK_PHASE).mkdir(parents=True)
    for place, words in ((folder, "text"), (folder / running.TASK_PHASE, "task")):
        (place / "model.keras").write_text(words)
    monkeypatch.setattr(running, "load_keras", lambda place: (place / "model.keras").read_text())
    scores = (0.6, 0.5) if text_is_better else (0.5, 0.5)
    done = {name: TableRow(name, 1, {"accuracy": score}) for name, score in zip(("text", "task"), scores)}
    best = running._better(work, folder, done, Devices())
    assert best == list(done)[-1] == (folder / "model.keras").read_text() == ("text" if text_is_better else "task")
    assert ("distilled on text alone is the better one: accuracy 0.6" in capsys.readouterr().out) is text_is_better


def test_no_time_is_left_for_the_second_phase(tuned, tmp_path, capsys):
    settings = dataclasses.replace(tuned, max_hours=0.5)
    work, began = running.prepare(settings), time.monotonic() - 1800
    assert not running._task_phase(settings, work, tmp_path / "out", Devices(), began)
    assert "--max_hours=0.5 are over; the same command goes on with the task" in capsys.readouterr().out


def test_pieces_are_counted_in_the_tasks_texts(tuned):
    work = running.prepare(dataclasses.replace(tuned, num_train_steps=0))
    assert set(WORDS) <= set(work.tokenizer.pieces) and not set(UNREAD) & set(work.tokenizer.pieces)


def test_what_was_measured_with_other_data_is_measured_again(settings, data, tmp_path):
    shutil.copytree(data / "pairs", tmp_path / "pairs")
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "out"), num_train_steps=0)
    first = report_of(running.run(settings))["table"]
    dev = tmp_path / "pairs" / "dev.tsv"
    dev.write_text("\n".join(dev.read_text().splitlines()[:20]) + "\n")
    second = report_of(running.run(dataclasses.replace(settings, data_dir=str(tmp_path / "pairs"))))["table"]
    assert first[0]["scores"]["likeness"] == pytest.approx(second[0]["scores"]["likeness"])
    assert first[0]["scores"]["spearman"] != second[0]["scores"]["spearman"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_dir": "MODEL"}, "is the folder of --model, which would be lost"),
        ({"embedding_size": 0, "plan": "none"}, "nothing of .* would become smaller: give --embedding_size"),
        (
            {"train_batch_size": 60, "gradient_accumulation_steps": 4, "held_out_rows": 21},
            "a batch of .* rows in 4 par",
        ),
    ],
)
def test_what_cannot_be_done_is_said_first(settings, tmp_path, changes, said):
    changes = {name: settings.model if value == "MODEL" else value for name, value in changes.items()}
    before = sorted(Path(settings.model).iterdir())
    with pytest.raises(UserError, match=said):
        running.run(dataclasses.replace(settings, **{"output_dir": str(tmp_path / "out")} | changes))
    assert not (tmp_path / "out").exists() and sorted(Path(settings.model).iterdir()) == before


def test_a_trained_model_is_not_replaced_by_an_untrained_one(settings, straight):
    with pytest.raises(UserError, match="holds a model that was trained, which --num_train_steps=0 would replace"):
        running.run(dataclasses.replace(settings, output_dir=str(straight), num_train_steps=0))


def test_rows_of_text_are_pairs_where_the_model_was_fine_tuned_on_pairs(settings, data, tokenizer, tmp_path):
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 1)
    task = {"task": "regression", "kind": "regression", "inputs": ["text", "other"]}
    teacher = write(tmp_path, model, tokenizer, **task, max_seq_length=16, metrics={})
    tuned = dataclasses.replace(settings, model=str(teacher), output_dir=str(tmp_path / "out"), text="")
    work = running.prepare(tuned)
    examples = list(task_of(tuned).stream("train"))
    assert sorted([*work.texts.train, *work.texts.held_out]) == sorted(tuple(example.texts) for example in examples)
    assert work.likeness(work.loaded.model) == pytest.approx(1)
    rows = make_rows([tuple(example.texts) for example in examples], work.tokenizer, 16)
    of_task = task_of(tuned).rows(examples, work.tokenizer, 16, training=True)
    assert rows.tokens.keys() == of_task.tokens.keys()
    for name in rows.tokens:
        np.testing.assert_array_equal(
            rows.tokens[name].read(0, sum(rows.lengths)), of_task.tokens[name].read(0, sum(rows.lengths))
        )
    single = running.prepare(dataclasses.replace(tuned, model=settings.model))
    assert {len(row) for row in single.texts.train} == {1}, "an embedder reads the texts of a pair one by one"


@pytest.mark.slow
def test_a_probe_measures_what_has_no_head(settings, data, tmp_path):
    settings = dataclasses.replace(
        settings, output_dir=str(tmp_path), task="classification", data_dir=str(data / "classes"),
        second_text_column="", num_train_steps=0,
    )  # fmt: skip
    report = report_of(running.run(settings))
    assert report["measured"] == "classification accuracy by a linear probe"
    assert 0.6 < report["table"][0]["scores"]["accuracy"] <= 1


def test_too_little_text_is_said(settings, tmp_path):
    with pytest.raises(UserError, match="different texts are too few to hold out 500"):
        running.run(dataclasses.replace(settings, output_dir=str(tmp_path), held_out_rows=500))


@pytest.mark.slow
def test_under_jax_the_same_is_learned(settings, straight, run_module, tmp_path):
    pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    jax = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    jax |= {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    values = dataclasses.asdict(settings) | {"output_dir": str(tmp_path / "out")}
    (tmp_path / "settings.json").write_text(json.dumps(values))
    done = run_module("albert_tf.compress", f"--settings={tmp_path / 'settings.json'}", env=os.environ | jax)
    assert done.returncode == 0, done.stderr[-2000:]
    one, other = (report_of(folder)["phases"]["text"]["scores"]["likeness"] for folder in (straight, tmp_path / "out"))
    assert one == pytest.approx(other, abs=2e-3)
