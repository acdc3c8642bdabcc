"""What 8 bits cost in accuracy, with and without VNNI: `python -m benchmarks.int8_accuracy --help`.

ONEDNN_MAX_CPU_ISA=AVX2 before the command makes oneDNN pass for a CPU without VNNI: there int8_vnni shows what its
products lose by clipping. "exact" is the same export with products of whole numbers, in this process.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import os
from unittest import mock

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.formats import load
from benchmarks.inference import make_random_encoder
from serving.check import measure
from serving.inference import InferenceOptions, make_encoder
from serving.inference.int8 import exact_products
from tfrecords.base.script import run_main
from tfrecords.base.settings import setting


@dataclasses.dataclass(frozen=True)
class Int8AccuracySettings:
    config: str = setting("albert_base_v2", help="named configuration; the weights are random")
    checkpoint: str = setting("", help="a published checkpoint instead, such as a Hugging Face folder")
    widen: float = setting(1.0, help="factor on all kernels: wider weights round and clip more")
    rows: int = setting(80, help="rows of 64 to 3 random token ids")
    labels: int = setting(5, help="of a random classifier on the pooled output, whose flips are counted")


def compare(settings: Int8AccuracySettings) -> None:
    model = load(settings.checkpoint) if settings.checkpoint else make_random_encoder(settings.config)
    encoder = getattr(model, "encoder", model)
    for variable in encoder.trainable_variables:
        if variable.name == "kernel":
            variable.assign(variable * settings.widen)
    ids, lengths, mask = _rows(encoder.config, settings.rows)
    expected = encoder({"input_ids": ids * mask, "input_mask": mask})["pooled_output"].numpy()
    rng = np.random.default_rng(0)
    # Centred: random weights give all rows about the same vector.
    head, centre = rng.normal(size=(expected.shape[1], settings.labels)), expected.mean(axis=0)
    labels = ((expected - centre) @ head).argmax(axis=1)
    for compute in ("int8", "int8_vnni"):
        with mock.patch("serving.inference.options.has_vnni", lambda: True):
            twin = make_encoder(encoder, InferenceOptions(compute, "skipped"))
        with exact_products(twin):
            answers = {"exact": _pooled(twin, ids, lengths)}
        answers[os.environ.get("ONEDNN_MAX_CPU_ISA", "this CPU")] = _pooled(twin, ids, lengths)
        for where, found in answers.items():
            angle, difference = measure(expected, found)
            flips = int((((found - centre) @ head).argmax(axis=1) != labels).sum())
            print(
                f"{compute:9} {where:10} cosine {1 - angle:.5f}, largest difference {difference:.3f}, "
                f"{flips} of {len(labels)} labels differ from the Keras model's"
            )


def _rows(config, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.linspace(64, 3, count).round().astype(np.int32)
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (count, 64), np.int32)
    return ids, lengths, (np.arange(64) < lengths[:, None]).astype(np.int32)


def _pooled(twin, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return tf.function(lambda *rows: twin.pooled(*rows), autograph=False)(ids, lengths).numpy()


if __name__ == "__main__":
    run_main(compare, Int8AccuracySettings)
