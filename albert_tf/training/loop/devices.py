import contextlib
import dataclasses
import json
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Attributes:
        strategy: a tf.distribute strategy, or None.
        replicas: number of parts of a batch computed in parallel, over all processes.
        process: this process's number, from 0.
    """

    strategy: Any = None
    replicas: int = 1
    processes: int = 1
    process: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process prints and writes files."""
        return self.process == 0

    def scope(self) -> contextlib.AbstractContextManager:
        """The context in which to create or load models."""
        return self.strategy.scope() if self.strategy is not None else contextlib.nullcontext()

    def check_batch(self, size: int, parts: int) -> None:
        """Raises UserError if the devices cannot share a batch in parts equally."""
        if size < 1 or size % (parts * self.replicas):
            raise UserError(
                f"{self.replicas} devices cannot share a batch of {size} rows in {parts} parts equally; choose another "
                "--train_batch_size"
            )

    def sums(self, values: list[float]) -> np.ndarray:
        """Returns each value's sum over all replicas: float64 [values]."""
        if self.strategy is None:
            return np.asarray(values, "float64")

        def add():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(values, tf.float64))

        summed = tf.function(lambda: self.strategy.run(add))()
        return self.strategy.experimental_local_results(summed)[0].numpy()

    def of_chief(self, value: float) -> float:
        """Returns the chief process's value in every process."""
        total, count = self.sums([value * self.is_chief, int(self.is_chief)])
        return total / count

    def check_same(self, step: int) -> None:
        first, second, processes = self.sums([step, step * step, 1])
        if first * first != second * processes:
            raise UserError(
                "the workers found different checkpoints; --output_dir must be the same folder for all, on storage "
                "that all of them see"
            )


def make_devices(strategy: str) -> Devices:
    """Returns the devices of a strategy; with several workers, call it before any TensorFlow operation."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise UserError(f"KERAS_BACKEND={backend}: this command trains under tensorflow; model.fit trains under others")
    if strategy == "none":
        return Devices()
    if strategy == "multi_worker":
        workers, process = _cluster()
        made = tf.distribute.MultiWorkerMirroredStrategy()
        return Devices(made, made.num_replicas_in_sync, len(workers), process)
    # Without GPUs it uses the CPU, even one split into several logical devices.
    gpus = tf.config.list_logical_devices("GPU")
    made = tf.distribute.MirroredStrategy([device.name for device in gpus or tf.config.list_logical_devices("CPU")])
    return Devices(made, made.num_replicas_in_sync)


def whereabouts(strategy: str, devices: Devices) -> str:
    """Returns a line on a run's devices; "" for the strategy "none"."""
    if strategy == "none":
        return ""
    shared = f"--strategy={strategy}: {devices.replicas} devices"
    gpus = len(tf.config.list_logical_devices("GPU"))
    if gpus:
        return f"{shared}, {gpus} GPUs here"
    cores = "the processor" if devices.replicas == 1 else f"{devices.replicas} processes or cuts of processors"
    return f"--strategy={strategy}: no GPU found here; it runs on {cores}"


def _cluster() -> tuple[list[str], int]:
    example = '{"cluster": {"worker": ["host1:port", "host2:port"]}, "task": {"type": "worker", "index": 0}}'
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        workers, task = config["cluster"]["worker"], config["task"]
        assert task["type"] == "worker" and 0 <= int(task["index"]) < len(workers)
        assert set(config["cluster"]) == {"worker"}
        return workers, int(task["index"])
    except Exception as error:
        raise UserError(f"--strategy=multi_worker needs the variable TF_CONFIG, like '{example}'") from error
