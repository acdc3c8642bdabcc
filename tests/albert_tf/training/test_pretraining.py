"""Training is the same interrupted or not, refuses what cannot be trained, and keeps what it says it keeps."""

import dataclasses
import math
import shutil

import numpy as np
import pytest

from albert_tf import AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import load
from albert_tf.training import pretraining
from albert_tf.training.evaluation import evaluate, trivial_baselines
from albert_tf.training.loop import training as loop
from albert_tf.training.loop.devices import Devices
from tests.albert_tf.tiny import table
from tests.albert_tf.training.trainers import history, pretrain
from tests.refusals import assert_refused, lines, refused
from tfrecords.base import files
from tfrecords.reader import read_examples

pytestmark = pytest.mark.usefixtures("eagerly")


def test_the_folder_holds_what_later_stages_need(tiny_run):
    loaded = load(tiny_run)
    model, tokenizer = loaded.model, loaded.tokenizer
    assert tokenizer.vocab_size == model.encoder.config.vocab_size == 500
    rows = history(tiny_run)
    assert [row["step"] for row in rows] == ["2", "4"]
    assert all(float(row["val_loss"]) > 0 and 0 <= float(row["masked_lm_accuracy"]) <= 1 for row in rows)
    # The kept model has no optimizer in it: a third of the size.
    assert (tiny_run / "model.keras").stat().st_size < 0.7 * (tiny_run / "last.keras").stat().st_size


def test_records_built_with_other_masks_are_another_run(tiny_settings, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    run = files.read_json(folder / "run.json")
    (records,) = run["records"]
    decisive = "masking masked_lm_prob max_ngram whole_words pair_task seed"
    assert records.keys() == set(decisive.split())
    for change in ({"masked_lm_prob": 0.3}, {"max_ngram": 1}):
        files.write_json(folder / "run.json", run | {"records": [records | change]})
        with refused("holds a run with records="):
            pretrain(tiny_settings, folder)


# What no run can be: of a run of trainers.KINDS, flags, and what is said.
WRONG = r"""
masked | --config=albert_huge => albert_huge
masked | --train_data=nowhere/*.tfrecord => nowhere/\*\.tfrecord
masked | --eval_data=nowhere/*.tfrecord => nowhere/\*\.tfrecord
masked | --optimizer=lamp => lamp
masked | --num_warmup_steps=4 => num_warmup_steps=4
masked | --num_train_steps=0 => num_train_steps=0
masked | --train_batch_size=0 => train_batch_size=0 must be 1
masked | --learning_rate=-0.001 => --learning_rate=-0\.001 must be 0 or more
masked | --dtype_policy=float7 => float7
masked | --output_dir=/proc/nowhere => /proc/nowhere
masked | --config=SHORT => 32 tokens long, the model takes at most 16; .* or raise max_position_embeddings
two phases | --second_from_step=0 => second_from_step=0 must be above 0
two phases | --second_from_step=4 => second_from_step=4 must be above 0 and below --num_train_steps=4
two phases | --second_train_data= => =1 is for --second_train_data; give both, or leave it out
two phases | --train_batch_size=7 => cannot share a batch of 7
two phases | --strategy=multi_worker --gradient_accumulation_steps=1 => TF_CONFIG
two phases | --strategy=tpu => strategy=tpu is unknown; choose one of none, mirrored
two phases | --walk=crawl => walk=crawl is unknown
two phases | --max_hours=-1 => max_hours=-1
two phases | --max_hours=nan => max_hours=nan
two phases | --log_steps=0 => log_steps=0
masked | --memory_length=24 => --memory_length=24 is for records of permutations
two phases | --second_train_data=PERMUTED => two phases differ in (pair_task|objective)
permutation | --train_batch_size=6 => cannot share a batch of 6
permutation | --train_batch_size=7 --gradient_accumulation_steps=1 => multiple of the 2 streams
permutation | --eval_batch_size=100000 => too few for a batch of 100000
permutation | --strategy=mirrored => --strategy=mirrored keeps no memory
permutation | --config=ABSOLUTE => need a configuration with position_type 'relative'
permutation | --eval_data=WORDS => have pair_task 'sop', needed is 'none'
"""


@pytest.mark.parametrize("line", lines(WRONG))
def test_impossible_settings_are_named_and_leave_nothing(line, run_settings, place, tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config, short = place("configs") / "masked.json", tmp_path / "short.json"
    files.write_json(short, files.read_json(config) | {"max_position_embeddings": 16})
    run, _, line = line.partition(" | ")
    for name, path in {
        "SHORT": short,
        "ABSOLUTE": config,
        "WORDS": place("words"),
        "PERMUTED": place("permutations"),
    }.items():
        line = line.replace(name, str(path))
    settings = dataclasses.replace(run_settings(run), output_dir=str(tmp_path / "run"))
    assert_refused(line, settings, pretraining.pretrain)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(tiny_settings, tmp_path):
    with refused(r"held-out loss is nan.*learning_rate.*another --output_dir"):
        pretrain(tiny_settings, tmp_path / "run", learning_rate=1e30, optimizer="adamw", num_warmup_steps=0)
    assert not (tmp_path / "run" / "last.keras").exists()


# Where nothing is measured, the newest.
BEST = """
val_loss | 1.5 1.2 1.2000001 1.3 1.1 | 1.5 1.2 1.1
dev_accuracy | 0.5 0.6 0.6 0.4 | 0.5 0.6
not measured | 2.0 1.0 | 2.0 1.0
"""


@pytest.mark.parametrize("metric, scores, stored", table(BEST))
def test_the_first_of_the_best_models_is_stored(metric, scores, stored, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(loop, "save_keras", lambda model, path, optimizer: saved.append(model))
    monkeypatch.setattr(loop.run_folder, "save_checkpoint", lambda *_: None)
    training = object.__new__(pretraining.Pretraining)
    training.devices, training.folder, training.best = Devices(), tmp_path, -math.inf
    training.main_metric, training.lower_is_better = metric, metric == "val_loss"
    for score in scores.split():
        training.model = score
        training._save({} if metric == "not measured" else {metric: float(score)})
    assert saved == stored.split()


@pytest.mark.slow
def test_evaluation_beside_the_trivial_baselines(tiny_run, tiny_data):
    """Counted by hand from the same records."""
    data = str(tiny_data)
    batches = list(read_examples(data, 16, training=False).as_numpy_iterator())
    tokens = np.concatenate([batch["masked_lm_ids"][batch["masked_lm_weights"] > 0] for batch in batches])
    baselines = trivial_baselines(data, data)
    assert baselines["masked_lm_accuracy"] in {np.mean(tokens == token) for token in set(tokens)}
    first = trivial_baselines(data, data, batch_size=16, max_eval_steps=1)
    for found, counted in ((baselines, batches), (first, batches[:1])):
        share = np.concatenate([batch["next_sentence_labels"].ravel() for batch in counted]).mean()
        assert min(abs(found["sentence_order_accuracy"] - one) for one in (share, 1 - share)) < 1e-6
    model = load_keras(tiny_run / "model.keras")
    figures = evaluate(model, data, batch_size=7)
    assert figures["loss"] == pytest.approx(evaluate(model, data, 64)["loss"], rel=1e-3)
    assert set(figures) >= {"masked_lm_accuracy", "sentence_order_accuracy", "masked_lm_loss"}


def test_records_of_another_vocabulary_tokenizer_or_length_are_not_evaluated(tiny_run, tiny_data, tmp_path):
    loaded = load(tiny_run)
    data = shutil.copytree(tiny_data, tmp_path / "data")
    whole = (data / "manifest.json").read_text()
    for old, new, said in (
        ('"vocab_size": 500', '"vocab_size": 400', "vocab_size 400, needed is 500"),
        (loaded.tokenizer.sha256, "0" * 64, "have tokenizer_sha256 '0000"),
    ):
        (data / "manifest.json").write_text(whole.replace(old, new))
        with refused(said):
            evaluate(loaded.model, str(data), tokenizer=loaded.tokenizer)
    short = AlbertPretrainer(AlbertEncoder(loaded.model.encoder.config.replace(max_position_embeddings=16)))
    with refused("32 tokens long, the model takes at most 16"):
        evaluate(short, str(tiny_data))
