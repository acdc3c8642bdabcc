"""RoBERTa's published recipe: every settings file says what was published."""

from pathlib import Path

import pytest

from albert_tf.training.pretraining_settings import PretrainingSettings
from tfrecords.base.settings import read_settings_file
from tfrecords.build_settings import BuildSettings

RECIPES = Path(__file__).parents[3] / "recipes" / "roberta"
# Liu et al. 2019, table 2.
FORMATS = {
    "examples_full_sentences": ("full-sentences", "none"),
    "examples_doc_sentences": ("doc-sentences", "none"),
    "examples_segment_pair_nsp": ("segment-pair", "nsp"),
    "examples_sentence_pair_nsp": ("sentence-pair", "nsp"),
}
RUNS = ("pretraining_base", "pretraining_large", "pretraining_table2")


def build_settings(name, **changes):
    values = read_settings_file(str(RECIPES / f"{name}.json"), BuildSettings)
    return BuildSettings(**{"max_ngram" if key == "ngram" else key: value for key, value in values.items()} | changes)


def run_settings(name, **changes):
    return PretrainingSettings(**read_settings_file(str(RECIPES / f"{name}.json"), PretrainingSettings), **changes)


def test_there_is_no_other_file():
    assert {path.stem for path in RECIPES.iterdir()} == {*FORMATS, *RUNS}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_table_2(name):
    settings = build_settings(name)
    assert (settings.input_format, settings.pair_task) == FORMATS[name]
    assert (settings.masking, settings.max_ngram, settings.whole_words) == ("dynamic", 1, False)
    assert (settings.max_seq_length, settings.max_predictions_per_seq) == (512, 77)
    assert settings.short_seq_prob == (0.1 if name == "examples_segment_pair_nsp" else 0)


@pytest.mark.parametrize(
    ("name", "rate", "warmup", "steps", "batch"),
    [
        ("pretraining_base", 6e-4, 24_000, 500_000, 8192),
        ("pretraining_large", 4e-4, 30_000, 500_000, 8192),
        ("pretraining_table2", 1e-4, 10_000, 1_000_000, 256),
    ],
)
def test_rates_and_optimizer(name, rate, warmup, steps, batch):
    settings = run_settings(name, train_data="data", output_dir="run")
    assert (settings.learning_rate, settings.num_warmup_steps, settings.num_train_steps) == (rate, warmup, steps)
    assert (settings.optimizer, settings.train_batch_size, settings.global_clipnorm) == ("adamw", batch, 0)
    assert (settings.beta_1, settings.beta_2, settings.epsilon, settings.weight_decay_rate) == (0.9, 0.98, 1e-6, 0.01)
