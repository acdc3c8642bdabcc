"""Pre-training that goes on with another vocabulary: pieces in common keep their rows, new ones begin as means."""

import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import save_official
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import load
from albert_tf.training import pretraining
from albert_tf.training.loop.devices import Devices
from albert_tf.training.start import load_pretraining_start
from tests.albert_tf.tiny import values_of
from tests.albert_tf.training.trainers import pretrain
from tests.refusals import refused
from tfrecords.building.builder import build
from tfrecords.building.settings import BuildSettings
from tfrecords.tokenizers.vocabularies.adding import add_words

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["hepatitis", "nephrology"]
BY_PIECE = ("embeddings/word_embeddings", "masked_lm/output_bias")


@pytest.fixture(scope="module")
def settings(tiny_settings, tiny_run, topics, tmp_path_factory):
    """One step at a rate that moves nothing, on records of a larger vocabulary than the run's."""
    data = tmp_path_factory.mktemp("larger") / "data"
    few = data.parent / "topics.txt"
    few.write_text(topics.read_text()[:60_000])
    larger = add_words(load(tiny_run).tokenizer, WORDS)
    build(str(few), data, larger, BuildSettings(max_seq_length=32, split_sentences=True), workers=1, overwrite=False)
    return dataclasses.replace(
        tiny_settings, config="", init_from=str(tiny_run), tokenizer=str(data), train_data=str(data), eval_data="",
        num_train_steps=1, num_warmup_steps=0, learning_rate=0.0
    )  # fmt: skip


def test_pieces_in_common_keep_their_rows_and_others_begin_as_means(settings, tiny_run, tmp_path, capsys):
    folder = pretrain(settings, tmp_path / "run")
    said = "Vocabulary: 500 pieces kept, 2 new from the mean of their former pieces, 0 dropped"
    assert said in capsys.readouterr().out.splitlines()
    pretrain(settings, folder)
    assert "trained already" in capsys.readouterr().out
    loaded = load(folder)
    before, after = values_of(load(tiny_run).model), values_of(load_keras(folder / "last.keras"))
    assert (
        loaded.tokenizer.vocab_size == loaded.model.encoder.config.vocab_size == 502 and before.keys() == after.keys()
    )
    for name, value in after.items():
        np.testing.assert_array_equal(value[:500] if name in BY_PIECE else value, before[name], err_msg=name)
    former = load(tiny_run).tokenizer
    for number, word in enumerate(WORDS, 500):
        for name in BY_PIECE:
            mean = before[name][former.encode(word)].mean(axis=0)
            np.testing.assert_allclose(after[name][number], mean, rtol=1e-5, atol=1e-8)


def test_the_former_tokenizer_must_be_known(settings, tiny_run, tmp_path):
    save_official(load(tiny_run).model, tmp_path / "official")
    settings = dataclasses.replace(settings, init_from=str(tmp_path / "official"), output_dir=str(tmp_path / "run"))

    with refused("nobody knows which pieces its rows are of; put the tokenizer"):
        pretraining.Pretraining(settings, Devices(), 0.0)
    load(tiny_run).tokenizer.save(tmp_path / "official")
    model = pretraining.Pretraining(settings, Devices(), 0.0).new_model()
    assert model.encoder.config.vocab_size == 502 and model.encoder.embeddings.word_embeddings.shape[0] == 502


def test_another_vocabulary_must_be_asked_for_and_be_that_of_the_records(settings, tiny_run, tmp_path):
    for tokenizer, said in (
        ("", r"another vocabulary than '.*' was trained with \(502 pieces, not 500\); .* or add --tokenizer=FOLDER"),
        (str(tiny_run), r"is not the tokenizer that the records were made with \(500 pieces, not 502\)"),
    ):
        with refused(said):
            pretrain(settings, tmp_path / "run", tokenizer=tokenizer)
    assert not (tmp_path / "run").exists()


def test_the_weights_own_tokenizer_changes_nothing(tiny_run):
    own = load(tiny_run).tokenizer
    start = load_pretraining_start(str(tiny_run), "", own, tokenizer=str(tiny_run))
    assert (start.vocabulary, start.config.vocab_size) == ("", 500)
