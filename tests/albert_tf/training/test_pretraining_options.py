"""Phases, parts of a batch, bad batches, dry run, the memory of permutations."""

import dataclasses
import importlib.util
import shutil
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertConfig, XlnetPretrainer, run_pretraining
from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.load import load
from albert_tf.training import pretraining
from albert_tf.training.loop.devices import Devices
from albert_tf.training.pretraining_settings import PretrainingSettings
from tests.albert_tf.training.test_devices import finish, start
from tests.albert_tf.training.test_resume import assert_same_run
from tests.albert_tf.training.trainers import history, pretrain
from tests.refusals import refused
from tfrecords.reading.permutations import read_permutations

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def settings(run_settings):
    """Two phases, batches in two parts, recompute, no evaluation, a row a step."""
    return run_settings("two phases")


@pytest.fixture(scope="module")
def straight(trained):
    return trained("two phases")


def test_history_shows_what_the_updates_went_by(straight):
    """One update a batch, in however many parts."""
    optimizer = load_keras(straight / "last.keras", compile=True).optimizer
    assert int(optimizer.iterations) == 4 and optimizer.gradient_accumulation_steps is None
    names = ("learning_rate", "gradient_norm", "memory_gb", *(f"trust_ratio_{n}" for n in ("min", "median", "max")))
    rates, norms, memory, *ratios = np.array([[float(row[name]) for name in names] for row in history(straight)]).T
    assert rates == pytest.approx([0.0075, 0.005, 0.0025, 0.0])
    assert (norms > 0).all() and len(set(norms)) == 4 and (memory > 0.1).all()
    assert (np.diff([np.zeros(4), *ratios], axis=0) > 0).all()


@pytest.mark.slow
def test_a_dry_run_tries_all_paths_and_leaves_nothing(settings, tmp_path, capsys):
    """And touches no file that was there, not even in a folder that is called dryrun."""
    wanted = dataclasses.replace(
        settings, config="albert_base_v2", eval_data=settings.train_data, second_eval_data=settings.train_data,
        num_train_steps=100_000, second_from_step=90_000, train_batch_size=4096, output_dir=str(tmp_path / "run"),
        dryrun=True, gradient_accumulation_steps=1, init_from="", walk="unrolled", optimizer="adamw"
    )  # fmt: skip
    (tmp_path / "run" / "dryrun").mkdir(parents=True)
    (tmp_path / "run" / "dryrun" / "thesis.txt").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    pretraining.try_all_paths(wanted)
    out = capsys.readouterr().out
    assert "stopped at step 3 of 6" in out and "Resuming at step 3" in out and "dry run: trained" in out
    assert sorted(tmp_path.rglob("*")) == before


def test_records_of_a_second_phase_are_looked_at_before_the_first_step(settings, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(settings.train_data, data)
    (path,), manifest = data.glob("train-*"), data / "manifest.json"
    path.write_bytes(path.read_bytes()[:-100])
    with refused(path.name):
        pretrain(settings, tmp_path / "run", second_train_data=str(data))
    manifest.write_text(manifest.read_text().replace('"pair_task": "sop"', '"pair_task": "nsp"'))
    with refused("two phases differ in pair_task: 'sop' and 'nsp'"):
        pretrain(settings, tmp_path / "run", second_train_data=str(data))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "rows, after, said",
    [(2, 4, "1.2000 at step 4"), (5, 4, "2.0000 at step 8"), (5, 0, "1.2000 at step 4"), (4, 6, "")],
)
def test_the_last_line_is_of_the_model_that_was_kept(tmp_path, capsys, rows, after, said):
    (tmp_path / "model.keras").touch()
    lines = ["step,val_loss", "2,1.5", "4,1.2", "6,2.5", "7,", "8,2.0"][: rows + 1]
    (tmp_path / "history.csv").write_text("\n".join(lines) + "\n")
    run_pretraining._say_end(tmp_path, after)
    expected = f"held-out loss {said}, the best\n" if said else "nothing was measured, as there was no --eval_data"
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/model.keras: {expected}")


@pytest.mark.parametrize("steps, warmup", [({}, 3125), ({"num_train_steps": 50}, 1), ({"num_train_steps": 5}, 0)])
def test_a_warm_up_that_nobody_set_follows_the_number_of_steps(steps, warmup):
    settings = PretrainingSettings(train_data="data", output_dir="run", config="albert_base_v2", **steps)
    assert settings.num_warmup_steps == warmup
    with refused("--num_warmup_steps=-2 must be -1 or more"):
        dataclasses.replace(settings, num_warmup_steps=-2)


def test_the_optimizer_is_what_the_settings_say(settings, tmp_path):
    asked = dict(weight_decay=0.2, beta_2=0.7, global_clipnorm=0.25)
    own = dataclasses.replace(settings, **asked, output_dir=str(tmp_path), jit_compile=True)
    model = pretraining.Pretraining(own, Devices(), 0.0).new_model()
    found = model.optimizer.get_config()
    assert {name: found[name] for name in asked} == asked and found["name"] == "lamb" and model.jit_compile


@pytest.mark.slow
def test_tensorboards_files_are_written_where_it_is_there(tiny_settings, tmp_path, monkeypatch):
    settings = dataclasses.replace(tiny_settings, tensorboard=True, num_train_steps=2)
    folder = pretrain(settings, tmp_path)
    assert any(b"trust_ratio_median" in file.read_bytes() for file in (folder / "tensorboard" / "train").iterdir())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(r"--tensorboard needs tensorboard: pip install .*tensorboard"):
        dataclasses.replace(settings, seed=1)


@pytest.mark.slow
def test_kill_9_at_any_moment_and_start_again(settings, tmp_path):
    own = dataclasses.replace(settings, output_dir=str(tmp_path / "run"), save_checkpoints_steps=1)
    kills, written = 0, tmp_path / "run" / "history.csv"
    for rows in (1, 2, 3, 5):
        process = start(own)
        while process.poll() is None and (rows == 5 or not written.is_file() or len(history(written.parent)) < rows):
            time.sleep(0.01)
        kills += process.poll() is None
        process.kill()
        process.communicate()
    assert process.returncode == 0 and kills == 3
    # In graphs as well: steps without them differ in the last bits.
    finish(start(dataclasses.replace(settings, output_dir=str(tmp_path / "straight"))))
    assert_same_run(tmp_path / "straight", tmp_path / "run", "kill -9", held_out_alone=False)


def test_checkpoints_hold_the_memory_and_the_model_does_not(trained):
    straight = trained("permutation")
    memory = load_keras(straight / "last.keras", compile=True).memory.to_numpy()
    # Two parts, two steps, four rows, 24 tokens, of which each row gives 16.
    assert memory.shape == (2, 2, 4, 24, 16) and memory.all()
    model = load(straight).model
    assert isinstance(model, XlnetPretrainer) and not model.memory.is_kept
    assert (model.encoder.config.memory_length, model.encoder.config.reuse_length) == (24, 16)


def test_the_memory_is_what_the_batch_before_left(trained, run_settings):
    """Of the last two updates, computed again with the memory as a feature of the batch."""
    model = load_keras(trained("permutation") / "last.keras", compile=True)
    batch = next(read_permutations(run_settings("permutation").train_data, 8, True, parts=2).as_numpy_iterator())
    memory = model.memory.to_numpy()
    given = model.encoder(
        {key: batch[key] for key in ("input_ids", "segment_ids", "is_reversed")} | {"memory": memory[0]}
    )
    model.encoder.seed_generator = None
    model(batch, training=True)
    after = model.memory.to_numpy()
    assert_array_equal(after[0], memory[1])
    # The part that is remembered of this batch is the reused one; of the first step it is the embedding's own.
    assert_array_equal(after[1][:, :, :8], memory[0][:, :, 16:])
    assert_allclose(after[1][0, :, 8:], given["memory"][0, :, 8:], atol=1e-6)


def test_a_configuration_says_the_memory_where_no_flag_does(run_settings, tmp_path):
    settings = run_settings("permutation")

    def config_of(**changes):
        run = dataclasses.replace(settings, output_dir=str(tmp_path), **changes)
        return pretraining.Pretraining(run, Devices(), 0.0).config

    assert config_of(memory_length=0).memory_length == config_of(memory_length=0).reuse_length == 0
    AlbertConfig.from_json(settings.config).replace(memory_length=10).to_json(tmp_path / "config.json")
    config = config_of(memory_length=0, config=str(tmp_path / "config.json"))
    assert (config.memory_length, config.reuse_length) == (10, 16)
