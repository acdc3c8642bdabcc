"""Training that goes on from weights of any format, with the heads that they have, and with another vocabulary.

Pieces in common keep their rows, new ones begin as means.
"""

import dataclasses
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from albert_tf import AlbertConfig
from albert_tf.checkpoints import formats, save_official
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import convert, load
from albert_tf.training import pretraining
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.devices import Devices
from albert_tf.training.start import load_pretraining_start
from tests.albert_tf.tiny import values_of
from tests.albert_tf.training.classes import begun
from tests.albert_tf.training.trainers import pretrain
from tests.refusals import refused
from tests.tfrecords.conftest import build_text
from tfrecords.tokenizers.vocabularies.adding import add_words

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["hepatitis", "nephrology"]
BY_PIECE = ("embeddings/word_embeddings", "masked_lm/output_bias")


@pytest.fixture(scope="module")
def settings(tiny_settings, tiny_run):
    """One step at a rate that moves nothing, from the weights of a run."""
    return dataclasses.replace(
        tiny_settings, config="", init_from=str(tiny_run), eval_data="", num_train_steps=1, num_warmup_steps=0,
        learning_rate=0.0
    )  # fmt: skip


@pytest.mark.parametrize("form", ["own", "official", "huggingface"])
def test_weights_of_every_format_go_on_with_the_heads_they_have(settings, tiny_run, tmp_path, form, capsys):
    loaded = load(tiny_run)
    if form != "own":
        formats.save(loaded.model, tmp_path / "start", form)
        (tmp_path / "start" / "spiece.model").write_bytes(loaded.tokenizer.vocabulary)
        settings = dataclasses.replace(settings, init_from=str(tmp_path / "start"))
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "run"))
    expected, found = values_of(loaded.model), values_of(pretraining.Pretraining(settings, Devices(), 0.0).new_model())
    assert "initialised anew: nothing" in capsys.readouterr().out
    heads = {name for name in expected if name.startswith(("masked_lm", "pair"))}
    assert expected.keys() == found.keys() and len(heads) == 7
    for name in found:
        assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.slow
def test_killed_before_its_first_checkpoint_a_run_starts_from_the_weights_again_and_after_it_needs_them_no_more(
    settings, tiny_run, tmp_path, capsys
):
    start = shutil.copytree(tiny_run, tmp_path / "start")
    settings = dataclasses.replace(settings, init_from=str(start), output_dir=str(tmp_path / "run"))
    begun = pretraining.Pretraining(settings, Devices(), 0.0)
    begun.folder.mkdir()
    run_folder.claim(begun.folder, begun.settings, begun.free, begun.facts())
    folder = pretraining.pretrain(settings)
    expected, found = values_of(load(tiny_run).model), values_of(load_keras(folder / "last.keras"))
    for name in expected:
        assert_array_equal(found[name], expected[name], err_msg=name)
    shutil.rmtree(start)
    pretraining.pretrain(settings)
    assert "trained already" in capsys.readouterr().out


def test_a_configuration_may_say_dropouts_and_extensions_and_nothing_else(tiny_settings, tiny_run, tmp_path):
    records, path = load(tiny_run).tokenizer, str(tmp_path / "config.json")

    def started(**changes):
        AlbertConfig.from_json(tiny_settings.config).replace(**changes).to_json(path)
        return load_pretraining_start(str(tiny_run), path, records, length=32).config

    assert started(hidden_dropout_prob=0.3).hidden_dropout_prob == 0.3
    assert started(step_signal="learned", depth_plan="1+1").unpublished == ["depth_plan", "step_signal"]
    with refused(r"disagree: num_hidden_layers=3 \(weights: 2\); leave out --config"):
        started(num_hidden_layers=3)


def test_a_fine_tuned_model_goes_on_with_its_head_where_that_is_asked_for(class_settings, finetuned):
    kernels = []
    for keep in (True, False):
        model = begun(dataclasses.replace(class_settings, init_from=str(finetuned), keep_head=keep, seed=2))
        expected, found = values_of(load_keras(finetuned)), values_of(model)
        kernels.append(np.abs(found["classifier/kernel"] - expected["classifier/kernel"]).max())
        for name in found.keys() - {"classifier/kernel", "classifier/bias"}:
            assert_array_equal(found[name], expected[name], err_msg=name)
    assert kernels[0] == 0 and kernels[1] > 1e-3


@pytest.mark.parametrize("config", ["", "longer"])
def test_rows_longer_than_the_weights_take_name_the_command_that_helps(tiny_settings, tiny_run, tmp_path, config):
    records = load(tiny_run).tokenizer
    if config:
        config = str(tmp_path / "config.json")
        AlbertConfig.from_json(tiny_settings.config).replace(max_position_embeddings=64).to_json(config)
    with refused(r"64 tokens long, the model takes at most 48; .* and then give the folder longer") as raised:
        load_pretraining_start(str(tiny_run), config, records, length=64)
    command = re.search(r"python -m albert_tf.convert_checkpoint (.*), and then give", str(raised.value))
    flags = dict(part.removeprefix("--").split("=") for part in command[1].split())
    output = tmp_path / flags["output"]
    convert(flags["input"], output, flags["to"], count=int(flags["max_positions"]))
    start = load_pretraining_start(str(output.parent), config, records, length=64)
    assert start.config.max_seq_length == 64 and start.tokenizer.sha256 == records.sha256


@pytest.fixture(scope="module")
def larger(settings, tiny_run, topics, tmp_path_factory):
    """The same on records of a larger vocabulary than the run's."""
    folder, tokenizer = tmp_path_factory.mktemp("larger"), add_words(load(tiny_run).tokenizer, WORDS)
    build_text(folder, topics.read_text()[:120_000], tokenizer, max_seq_length=32, split_sentences=True)
    return dataclasses.replace(settings, tokenizer=f"{folder}/data", train_data=f"{folder}/data")


def test_pieces_in_common_keep_their_rows_and_others_begin_as_means(larger, tiny_run, tmp_path, capsys):
    folder = pretrain(larger, tmp_path / "run")
    said = "Vocabulary: 500 pieces kept, 2 new from the mean of their former pieces, 0 dropped"
    assert said in capsys.readouterr().out.splitlines()
    pretrain(larger, folder)
    assert "trained already" in capsys.readouterr().out
    loaded = load(folder)
    before, after = values_of(load(tiny_run).model), values_of(load_keras(folder / "last.keras"))
    assert (
        loaded.tokenizer.vocab_size == loaded.model.encoder.config.vocab_size == 502 and before.keys() == after.keys()
    )
    for name, value in after.items():
        assert_array_equal(value[:500] if name in BY_PIECE else value, before[name], err_msg=name)
    former = load(tiny_run).tokenizer
    for number, word in enumerate(WORDS, 500):
        for name in BY_PIECE:
            mean = before[name][former.encode(word)].mean(axis=0)
            np.testing.assert_allclose(after[name][number], mean, rtol=1e-5, atol=1e-8)


def test_the_former_tokenizer_must_be_known(larger, tiny_run, tmp_path):
    save_official(load(tiny_run).model, tmp_path / "official")
    larger = dataclasses.replace(larger, init_from=str(tmp_path / "official"), output_dir=str(tmp_path / "run"))

    with refused("nobody knows which pieces its rows are of; put the tokenizer"):
        pretraining.Pretraining(larger, Devices(), 0.0)
    load(tiny_run).tokenizer.save(tmp_path / "official")
    model = pretraining.Pretraining(larger, Devices(), 0.0).new_model()
    assert model.encoder.config.vocab_size == 502 and model.encoder.embeddings.word_embeddings.shape[0] == 502


def test_another_vocabulary_must_be_asked_for_and_be_that_of_the_records(larger, tiny_run, tmp_path):
    for tokenizer, said in (
        ("", r"another vocabulary than '.*' was trained with \(502 pieces, not 500\); .* or add --tokenizer=FOLDER"),
        (str(tiny_run), r"is not the tokenizer that the records were made with \(500 pieces, not 502\)"),
    ):
        with refused(said):
            pretrain(larger, tmp_path / "run", tokenizer=tokenizer)
    assert not (tmp_path / "run").exists()


def test_the_weights_own_tokenizer_changes_nothing(tiny_run):
    own = load(tiny_run).tokenizer
    start = load_pretraining_start(str(tiny_run), "", own, tokenizer=str(tiny_run))
    assert (start.vocabulary, start.config.vocab_size) == ("", 500)
