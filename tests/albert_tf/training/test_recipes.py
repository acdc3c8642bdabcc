"""RoBERTa's published recipe: every settings file says what was published, and trains a small model."""

import dataclasses
import json
from pathlib import Path

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.training.pretraining import pretrain
from albert_tf.training.pretraining_settings import PretrainingSettings, shrunk
from tests.albert_tf.tiny import table
from tests.refusals import changed
from tfrecords import train_tokenizer
from tfrecords.base.settings import read_settings_file
from tfrecords.building.builder import build
from tfrecords.building.settings import BuildSettings
from tfrecords.reading.manifest import read_manifest
from tfrecords.tokenizers.loading import load_tokenizer

RECIPES = Path(__file__).parents[3] / "recipes" / "roberta"
# Of each file what no other has.
PUBLISHED = """
examples_full_sentences | --input_format=full-sentences --pair_task=none --short_seq_prob=0
examples_doc_sentences | --input_format=doc-sentences --pair_task=none --short_seq_prob=0
examples_segment_pair_nsp | --input_format=segment-pair --pair_task=nsp --short_seq_prob=0.1
examples_sentence_pair_nsp | --input_format=sentence-pair --pair_task=nsp --short_seq_prob=0
pretraining_base | --learning_rate=6e-4 --num_warmup_steps=24000 --num_train_steps=500000 --train_batch_size=8192
pretraining_large | --learning_rate=4e-4 --num_warmup_steps=30000 --num_train_steps=500000 --train_batch_size=8192
pretraining_table2 | --learning_rate=1e-4 --num_warmup_steps=10000 --num_train_steps=1000000 --train_batch_size=256
"""
ALL_FORMATS = "--masking=dynamic --ngram=1 --nowhole_words --max_seq_length=512 --max_predictions_per_seq=77"
ALL_RUNS = "--optimizer=adamw --global_clipnorm=0 --weight_decay=0.01 --beta_2=0.98"


def build_settings(name, **changes):
    values = read_settings_file(str(RECIPES / f"{name}.json"), BuildSettings)
    return BuildSettings(**{"max_ngram" if key == "ngram" else key: value for key, value in values.items()} | changes)


def run_settings(name, **changes):
    return PretrainingSettings(**read_settings_file(str(RECIPES / f"{name}.json"), PretrainingSettings), **changes)


@pytest.mark.parametrize("name, flags", table(PUBLISHED))
def test_every_file_says_what_was_published(name, flags):
    is_run = name.startswith("pretraining")
    settings = run_settings(name, train_data="data", output_dir="run") if is_run else build_settings(name)
    assert changed(settings, f"{flags} {ALL_RUNS if is_run else ALL_FORMATS}") == settings


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory, topics):
    """A folder with a short text, and a byte-level BPE of 400 pieces."""
    folder = tmp_path_factory.mktemp("bpe")
    (folder / "text.txt").write_text(topics.read_text()[:100_000])
    train_tokenizer.main(
        train_tokenizer.TokenizerSettings(
            input=f"{folder}/text.txt", output_prefix=f"{folder}/bpe", kind="bpe", vocab_size=400
        )
    )
    return folder


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "rows, name", [("examples_full_sentences", "pretraining_base"), ("examples_segment_pair_nsp", "pretraining_table2")]
)
@pytest.mark.slow
def test_every_file_trains_a_small_model(rows, name, small_corpus, tmp_path):
    data, tokenizer = tmp_path / "data", load_tokenizer(small_corpus / "bpe.json")
    changes = dict(max_seq_length=32, max_predictions_per_seq=5, split_sentences=True)
    build(str(small_corpus / "text.txt"), str(data), tokenizer, build_settings(rows, **changes), 1, False)
    assert read_manifest(str(data))["pad_id"] == 1
    settings = run_settings(name, train_data=str(data), output_dir=str(tmp_path), seed=1)
    small = shrunk(settings, tmp_path, AlbertConfig.named(settings.config), replicas=1)
    assert small.beta_2 == 0.98
    folder = pretrain(dataclasses.replace(small, num_train_steps=1, num_warmup_steps=0))
    assert json.loads((folder / "config.json").read_text())["position_offset"] == 2
    history = (folder / "history.csv").read_text().splitlines()
    assert len(history) > 1 and ("next_sentence_loss" in history[0]) == ("pair" in rows)


ABLATIONS = RECIPES.parent / "ablations"


@pytest.mark.parametrize("row", sorted(ABLATIONS.glob("rows/*.json")), ids=lambda path: path.stem)
def test_a_row_of_alberts_tables_is_a_model_and_changes_something(row):
    base, changes = (json.loads(path.read_text()) for path in (ABLATIONS / "model.json", row))
    AlbertConfig(**base | changes)
    assert [key for key, value in changes.items() if base.get(key) == value] == []


def test_settings_of_alberts_tables_are_those_of_the_commands():
    assert read_settings_file(str(ABLATIONS / "examples.json"), BuildSettings)
    assert read_settings_file(str(ABLATIONS / "pretraining.json"), PretrainingSettings)
