"""The whole way on a tiny BERT: what is learned and said. (How a run goes on after a kill: test_resume.py.)"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder, compress
from albert_tf.compression import distillation
from albert_tf.compression import run as running
from albert_tf.compression.distillation import digest_of, lessons_of
from albert_tf.compression.text import make_rows, task_of
from albert_tf.loading.load import load
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.training.loop.devices import Devices
from tests.albert_tf.compression.tiny import CONFIG, PIECES, UNREAD, WORDS, report_of
from tests.albert_tf.tiny import write_model
from tests.refusals import assert_refused, changed, lines, refused

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def straight(settings, tmp_path_factory):
    return running.run(changed(settings, f"--output_dir={tmp_path_factory.mktemp('straight')}"))


def test_an_ordinary_model_folder_and_its_report(straight, settings):
    loaded = load(straight)
    assert loaded.task == {"distilled_from": load(settings.model).identity()}
    config = loaded.model.encoder.config
    assert (config.embedding_size, config.depth_plan, config.depth_lora_rank) == (8, "1x2", 2)
    assert loaded.predict(["a fine film"]).shape == (1, 16)
    report = report_of(straight)
    assert report["parameters"]["compressed"] == loaded.model.count_params() < report["parameters"]["as it is"]
    assert report["likeness"]["untrained"] < report["likeness"]["trained"] < 1


def test_a_teacher_with_dropout_is_known_again_by_its_weights():
    """Each load of a model has other states of dropout, and the same run goes on."""
    config = CONFIG.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    one, other = AlbertEncoder(config, seed=1), AlbertEncoder(config, seed=2)
    other.set_weights(one.get_weights())
    assert digest_of(one) == digest_of(other)
    other.weights[-1].assign_add(np.ones(other.weights[-1].shape))
    assert digest_of(one) != digest_of(other)


@pytest.mark.slow
def test_words_of_a_pretrained_model_and_fewer_pieces(settings, tokenizer, tmp_path):
    teacher = write_model(tmp_path, AlbertPretrainer(AlbertEncoder(CONFIG, seed=2), pair_task="nsp"), tokenizer)
    flags = f"--model={teacher} --output_dir={tmp_path}/out"
    flags += " --num_train_steps=3 --save_checkpoints_steps=3 --vocab_from=corpus"
    folder = running.run(changed(settings, flags))
    loaded = load(folder)
    assert isinstance(loaded.model, AlbertPretrainer)
    assert "states,words" in (folder / "text_phase" / "history.csv").read_text().splitlines()[0]
    assert not set(UNREAD) & set(loaded.tokenizer.pieces) and set(WORDS) <= set(loaded.tokenizer.pieces)
    assert loaded.model.encoder.config.vocab_size == loaded.tokenizer.vocab_size < len(PIECES)


def test_after_each_block_of_a_layer_there_is_a_state_to_learn(settings, tokenizer, tmp_path):
    config = CONFIG.replace(sharing="all", inner_group_num=2)
    lesson = SimpleNamespace(config=config, tokenizer=tokenizer, train=range(64), layers=(0, 1))
    settings = changed(settings, f"--output_dir={tmp_path}")
    assert distillation.TextDistillation(settings, lesson, None, Devices(), 0.0).states == [0, 1, 2, 3, 4]


# What is compressed, and then the flags.
REFUSED = r"""
embedder | --output_dir=MODEL => is the folder of --model, which would be lost
embedder | --embedding_size=0 --plan=none --lora_rank=16 => nothing of .* would become smaller: give --embedding_size
embedder | --train_batch_size=60 --gradient_accumulation_steps=4 --held_out_rows=21 => a batch of .* rows in 4 par
embedder | --held_out_rows=500 => different texts are too few to hold out 500
embedder | --max_seq_length=25 => =25 is more than the 24 tokens .*--max_positions=25
bare | => holds no tokenizer; put its vocabulary
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_cannot_be_done_is_said_first(settings, tokenizer, tmp_path, line):
    (of, _, line), folder = line.partition(" | "), Path(settings.model)
    if of != "embedder":
        (folder := tmp_path / "model").mkdir()
        write_model(folder, AlbertEncoder(CONFIG), tokenizer)
    if of == "bare":
        (folder / "albert_tokenizer.json").unlink()
        (folder / "vocab.txt").unlink()
    before, out = sorted(folder.iterdir()), tmp_path / "out"
    settings = changed(settings, f"--model={folder} --output_dir={out}")
    assert_refused(line.replace("MODEL", str(folder)), settings, running.run)
    assert not out.exists() and sorted(folder.iterdir()) == before


def test_no_model_is_lost_in_its_folder(settings, straight, tmp_path):
    other = shutil.copytree(settings.model, tmp_path / "other")
    for folder, line in (
        (straight, "--learning_rate=1 => holds a run with .*learning_rate"),
        (straight, "--num_train_steps=0 => a model that was trained, which --num_train_steps=0 would replace"),
        (other, "=> holds another model, which would be lost; give another --output_dir"),
    ):
        before = (folder / "model.keras").read_bytes()
        assert_refused(line, changed(settings, f"--output_dir={folder}"), running.run)
        assert (folder / "model.keras").read_bytes() == before


def test_a_model_teaches_what_it_is_used_for():
    encoder, relative = AlbertEncoder(CONFIG), AlbertEncoder(CONFIG.replace(position_type="relative"))
    walk = AlbertEncoder(CONFIG.replace(sharing="all", equilibrium_solver="fixed_point", equilibrium_max_steps=4))
    vectors = {"vectors": 1.0, "similarities": 10.0}
    for teacher, expected in (
        (encoder, vectors | {"states": 1.0}),
        (AlbertSentenceEmbedder(encoder), vectors | {"states": 1.0}),
        (AlbertPretrainer(encoder), vectors | {"states": 1.0, "words": 1.0}),
        (AlbertClassifier(encoder, 2), {"states": 1.0}),
        # A row of XLNet's has no room to predict words in.
        (XlnetPretrainer(relative), vectors | {"states": 1.0}),
        # A model that iterates to a fixed point keeps no states.
        (walk, vectors),
    ):
        assert lessons_of(teacher) == expected
    with refused("can teach nothing"):
        lessons_of(AlbertClassifier(walk, 2))


def test_a_finished_run_is_found_again_and_a_loss_by_training_is_warned_of(
    settings, straight, tmp_path, capsys, caplog
):
    folder = shutil.copytree(straight, tmp_path / "moved")
    likeness = iter([0.75, 0.7])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.CompressionInput, "score", lambda *_: next(likeness))
        compress.main(changed(settings, f"--output_dir={folder}"))
    said = capsys.readouterr()
    assert f"{folder}/text_phase is trained already (6 steps)" in said.out
    assert "likeness 0.7500 without training, 0.7000 after it" in said.out
    assert f"wrote {folder}/model.keras" in said.out and "next: python -m serving.export" in said.err
    assert "training made the model less like the whole one" in caplog.text


@pytest.fixture
def tuned(settings, data, tokenizer, tmp_path):
    """Settings for a model that was fine-tuned on pairs, which learns from its task's texts."""
    model = AlbertClassifier(AlbertEncoder(CONFIG, seed=2), 1)
    task = {"task": "regression", "kind": "regression", "inputs": ["text", "other"]}
    (tmp_path / "teacher").mkdir()
    teacher = write_model(
        tmp_path / "teacher", model, tokenizer, **task, max_seq_length=16, metrics={"spearman": 0.123}
    )
    flags = f"--model={teacher} --output_dir={tmp_path}/out --text= --task=regression --data_dir={data}/pairs"
    return changed(settings, f"{flags} --second_text_column=other --vocab_from=corpus")


def test_rows_of_text_are_pairs_where_the_model_was_fine_tuned_on_pairs(tuned, settings):
    work, task = running.prepare(tuned), task_of(tuned)
    assert set(WORDS) <= set(work.tokenizer.pieces) and not set(UNREAD) & set(work.tokenizer.pieces)
    examples = list(task.stream("train"))
    texts = [tuple(example.texts) for example in examples]
    assert sorted([*work.texts.train, *work.texts.held_out]) == sorted(texts)
    ours, theirs = make_rows(texts, work.tokenizer, 16), task.rows(examples, work.tokenizer, 16, training=True)
    for name, array in ours.tokens.items():
        count = sum(ours.lengths)
        assert array.read(0, count).tolist() == theirs.tokens[name].read(0, count).tolist()
    single = running.prepare(changed(tuned, f"--model={settings.model}"))
    assert {len(row) for row in single.texts.train} == {1}, "an embedder reads the texts of a pair one by one"


def test_a_fine_tuned_model_keeps_its_head_and_its_task_but_not_its_scores(tuned, settings):
    folder = running.run(changed(tuned, "--num_train_steps=0"))
    loaded, whole = load(folder), load(tuned.model)
    np.testing.assert_array_equal(loaded.model.head.kernel, whole.model.head.kernel)
    assert loaded.task == {name: value for name, value in whole.task.items() if name != "metrics"}
    # Another model in its folder is not told of the task.
    running.run(changed(settings, f"--output_dir={folder} --num_train_steps=0"))
    assert not (folder / "task.json").exists()


def test_texts_of_several_labels_are_learned_from(tuned, data, tmp_path):
    texts = (data / "text.txt").read_text().splitlines()
    lines = (json.dumps({"text": text, "label": ["yes", "no"]}) + "\n" for text in texts)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("".join(lines))
    tuned = changed(tuned, f"--task=multilabel --data_dir={tmp_path}/data --second_text_column=")
    assert len(running.prepare(tuned).texts.held_out) == 16


def test_single_texts_are_no_lesson_for_a_model_of_pairs(tuned):
    line = "--second_text_column= => fine-tuned on rows of 2 texts, and --data_dir=.* has rows of 1; give the columns'"
    assert_refused(line, tuned, running.run)
    assert not Path(tuned.output_dir).exists()
