"""The whole way on a tiny BERT: what is cut, learned and said. (How a run goes on after a kill: test_resume.py.)"""

import json
import shutil
import string
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder, compress
from albert_tf.checkpoints.resizing import narrow_blocks
from albert_tf.checkpoints.variables import named_variables
from albert_tf.compression import run as running
from albert_tf.compression import start
from albert_tf.compression.distillation import TextDistillation, digest_of, lessons_of
from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.start import CompressionPlan, cut_config, cut_of, keep_layers
from albert_tf.compression.text import make_rows, task_of
from albert_tf.loading.load import load
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.training.loop.devices import Devices
from tests.albert_tf.tiny import small, write_model
from tests.refusals import assert_refused, changed, lines, refused
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["a", "the", "dull", "fine", "film", "was", "play", "actor", "and", "not", "very", "good", "bad", "plot"]
UNREAD = ["zebra", "yak"]
LETTERS = string.ascii_lowercase
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *UNREAD, *LETTERS, *map("##{}".format, LETTERS)]
CONFIG = small(
    vocab_size=len(PIECES), embedding_size=16, max_position_embeddings=24, sharing="none", initializer_range=0.3
)


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer("\n".join(PIECES).encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text, and a pair task with numbers."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def sentence():
        return " ".join(random.choice(WORDS, size=random.integers(3, 9)))

    (folder / "text.txt").write_text("\n".join(sentence() for _ in range(60)) + "\n")
    (folder / "pairs").mkdir()
    lines = [f"{sentence()}\t{sentence()}\t{number}" for number in range(40)]
    (folder / "pairs" / "train.tsv").write_text("text\tother\tlabel\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def embedder(tokenizer, tmp_path_factory):
    keras.utils.set_random_seed(3)
    model = AlbertSentenceEmbedder(AlbertEncoder(CONFIG, pooler=False))
    return write_model(tmp_path_factory.mktemp("embedder"), model, tokenizer)


@pytest.fixture(scope="module")
def settings(embedder, data):
    return CompressSettings(
        model=str(embedder), output_dir="", text=str(data / "text.txt"), embedding_size=8, lora_rank=2,
        held_out_rows=16, max_seq_length=16, num_train_steps=6, train_batch_size=16, learning_rate=5e-3,
        save_checkpoints_steps=6
    )  # fmt: skip


@pytest.fixture(scope="module")
def straight(settings, tmp_path_factory):
    return running.run(changed(settings, f"--output_dir={tmp_path_factory.mktemp('straight')}"))


def test_an_ordinary_model_folder_and_its_report(straight, settings):
    loaded = load(straight)
    assert loaded.task == {"distilled_from": load(settings.model).identity()}
    config = loaded.model.encoder.config
    assert (config.embedding_size, config.depth_plan, config.depth_lora_rank) == (8, "1x2", 2)
    assert loaded.predict(["a fine film"]).shape == (1, 16)
    report = json.loads((straight / "compress.json").read_text())
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
    assert TextDistillation(settings, lesson, None, Devices(), 0.0).states == [0, 1, 2, 3, 4]


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


# What a model is cut to, and what it is before any training.
CUT = CONFIG.replace(num_hidden_layers=4)
FEATURES = {"input_ids": np.arange(20).reshape(2, 10).astype("int32")}


@pytest.fixture(scope="module")
def encoder():
    return AlbertEncoder(CUT, seed=1)


def cut_settings(**changes):
    return CompressSettings(**{"model": "m", "output_dir": "o", "text": "t", "num_train_steps": 0} | changes)


def test_defaults_are_filled_in(encoder):
    # 16 columns are below the default of 128 already.
    assert cut_of(cut_settings(), encoder) == CompressionPlan((0, 1, 2, 3), 0, "1x4", 16)
    assert cut_of(cut_settings(embedding_size=8, layers=2, lora_rank=0), encoder) == CompressionPlan((1, 3), 8, "1x2")
    assert cut_of(cut_settings(plan="none"), encoder) == CompressionPlan((0, 1, 2, 3))
    albert = AlbertEncoder(CUT.replace(sharing="all", embedding_size=8))
    assert cut_of(cut_settings(), albert) == CompressionPlan((0, 1, 2, 3))


IMPOSSIBLE = r"""
--layers=5 => --layers=5 is more than the model's 4
--plan=1x3 => runs 3 blocks, num_hidden_layers is 4
--plan=x => is no part of a plan
--task=sst2 --text= => give the texts to learn from
--data_dir=d => --data_dir=d is for --task; give both, or leave it out
--text= => give the texts to learn from: --text='corpus/\*.txt', or --task and --data_dir
--task=sst2 --data_dir=d => or --task and --data_dir, not both
--vocab_size=5 => --vocab_size=5 is for --vocab_from; give both, or leave it out
--embedding_size=17 => embedding size 17 must be from 1 to below the model's 16
--intermediate_size=24 => intermediate size 24 must be from 1 to below the model's 24
--embedding_size=8 --plan=none --lora_rank=2 => --lora_rank=2 is of blocks that are shared
factorised | --embedding_size=4 => factorised already, at 8 columns
relative | --embedding_size=8 => without a layer norm
"""
OTHERS = {"factorised": {"embedding_size": 8}, "relative": {"position_type": "relative"}}


@pytest.mark.parametrize("line", lines(IMPOSSIBLE))
def test_what_cannot_be_cut_so_is_said_before_anything_is_measured(encoder, line):
    of, _, line = line.rpartition(" | ")
    model = AlbertEncoder(CUT.replace(**OTHERS[of])) if of else encoder
    assert_refused(line, cut_settings(), lambda asked: cut_of(asked, model))


def test_a_cut_has_the_configuration_foretold(encoder):
    for changes in (
        {"embedding_size": 8},
        {"plan": "1+1x2+1", "lora_rank": 2, "intermediate_size": 8},
        {"layers": 2, "embedding_size": 4},
        {"plan": "none", "intermediate_size": 20},
    ):
        cut = cut_of(cut_settings(**changes), encoder)
        assert start.compress(encoder, cut).config == cut_config(CUT, cut)


def test_layers_that_stay_are_as_they_were_with_their_exits(encoder):
    model = AlbertClassifier(encoder, 3, early_exit=True)
    kept, named = named_variables(keep_layers(model, (1, 3))), named_variables(model)
    assert {"exit_0/kernel", "classifier/kernel", "attention_1/query/kernel"} < kept.keys()
    assert any(name.startswith("exit_0/") for name in kept)
    for name, variable in kept.items():
        before = name.replace("_1/", "_3/").replace("_0/", "_1/")
        assert_array_equal(variable, named[before], err_msg=name)
    with refused("whose layers share nothing"):
        keep_layers(AlbertEncoder(CUT.replace(sharing="all")), (1, 3))


def test_the_words_of_relative_positions_stay_as_wide_by_default():
    sizes = {"hidden_size": 160, "embedding_size": 160, "position_type": "relative"}
    assert cut_of(cut_settings(), AlbertEncoder(CUT.replace(**sizes))).embedding_size == 0


@pytest.mark.parametrize("changes", [{}, {"feed_forward": "glu"}])
def test_units_without_effect_are_the_ones_that_go(changes):
    """With the low rank of their block and of every step."""

    def check(model, units):
        narrow = narrow_blocks(model, units)(FEATURES)["sequence_output"]
        assert_allclose(narrow, model(FEATURES)["sequence_output"], atol=1e-5)

    model = AlbertEncoder(CUT.replace(**changes), seed=2)
    for number, half in enumerate(model.halves_of("feed_forward")):
        kernel = np.array(half.output_dense.kernel)
        kernel[[3 + number, 7]] = 0
        half.output_dense.kernel.assign(kernel)
    check(model, 22)
    shared = start.compress(model, CompressionPlan((0, 1, 2, 3), 0, "1x4", 2))
    (half,) = shared.halves_of("feed_forward")
    for variable in (half.output_dense.kernel, half.lora_output.a):
        variable.assign(np.where(np.arange(24)[:, None] == 5, 0, variable))
    check(shared, 23)


def test_heads_stay_and_an_embedders_pooler_goes(encoder):
    cut, model = CompressionPlan((0, 1, 2, 3), 8, "1x4", 2), AlbertClassifier(encoder, 3)
    assert start.compress(AlbertSentenceEmbedder(encoder), cut).encoder.pooler is None
    small = start.compress(model, cut)
    assert small(FEATURES).shape == (2, 3) and small.encoder.config.embedding_size == 8
    kernels = [one.head_variables()["classifier/kernel"] for one in (small, model)]
    assert_array_equal(*kernels)
