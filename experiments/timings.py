"""What a step of training and an answer take: all rows in turn in one process, so that a machine's drift meets all."""

import contextlib
import dataclasses
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.training.devices import Devices
from albert_tf.training.loop import make_steps
from albert_tf.training.pretraining import Pretraining
from experiments.runs import Run
from serving.export import ExportSettings, export
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar

# Of the rounds, the first few: memory is allocated and kernels are chosen in them.
_WARM_UP = 2


def training_times(runs: dict[str, Run], data: dict[str, Path], rounds: int) -> dict[str, float]:
    """Measures a training step of each row, from its trained weights on.

    Args:
        runs: a finished run of each row, by its name.
        data: the examples of each.
        rounds: that each row makes a step in.

    Returns:
        Seconds of a step by row: medians over the rounds.
    """
    with tempfile.TemporaryDirectory() as folder:
        steps = {name: _training_step(run, data[name], Path(folder) / name) for name, run in runs.items()}
        return medians(steps, rounds)


def answer_times(runs: dict[str, Run], length: int, rounds: int) -> dict[str, float]:
    """Measures an answer of each row's encoder to one row of `length` tokens, exported for speed.

    The export is that of `serving.export --compute=auto`, called in this process. A row that cannot be exported is left
    out, and said.

    Args:
        runs: a finished run of each row, by its name.
        length: tokens of the request.
        rounds: that each row answers in.

    Returns:
        Milliseconds of an answer by row: medians over the rounds.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers = {}
        for name, run in runs.items():
            try:
                answers[name] = _answer(run.model_folder, Path(folder) / name, length)
            except UserError as error:
                print(f"{name}: no time of an answer, it is not exported: {error}", file=sys.stderr)
        return {name: 1000 * seconds for name, seconds in medians(answers, rounds).items()}


def _training_step(run: Run, data: Path, folder: Path) -> Callable[[], object]:
    # Trained weights: how long a walk that stops by itself takes depends on them.
    settings = dataclasses.replace(run.settings(data), init_from=str(run.model_folder), output_dir=str(folder))
    # Every row has graphs of its own, and is warned of them.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):
        training = Pretraining(settings, Devices(), time.monotonic())
        training.model = model = training.new_model()
        training.prepare()
    parts = training.settings.gradient_accumulation_steps
    steps = make_steps(model, Devices(), settings.jit_compile, parts, settings.fused_attention)
    batches = steps.batches(training.batches(training.phases()[0], 0), training=True)()

    def step() -> None:
        for _ in range(steps.parts):
            steps.train(next(batches))
        steps.running()  # Waits for the update.

    return step


def _answer(model: Path, folder: Path, length: int) -> Callable[[], object]:
    settings = ExportSettings(model=str(model), output_dir=str(folder), compute="auto", warm_up_lengths="")
    loaded = tf.saved_model.load(str(export(settings)))
    call = loaded.signatures["serving_default"]
    vocab_size = AlbertConfig.from_json(model / "config.json").vocab_size
    ids = np.random.default_rng(0).integers(5, min(100, vocab_size), (1, length))
    known = {"input_ids": ids, "lengths": [length], "segment_ids": np.zeros_like(ids)}
    # XLNet's take the segments of single texts, too.
    inputs = {name: tf.constant(known[name], tf.int32) for name in call.structured_input_signature[1]}
    return lambda kept=loaded: [value.numpy() for value in call(**inputs).values()]


def medians(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds by name; each function once a round, in turn."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in progress_bar(range(rounds + _WARM_UP), desc="timing", unit=" rounds"):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            if turn >= _WARM_UP:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
