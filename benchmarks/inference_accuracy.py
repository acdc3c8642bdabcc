"""A fine-tuned SST-2 classifier through the SavedModel: what lower precision and early exit cost and gain."""

import gzip
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.loading.load import load
from benchmarks.inference_data import pad, sst2_dev
from serving.inference import ExitRule, InferenceOptions, make_encoder
from serving.inference.layers import dense
from tfrecords.base.errors import UserError

# By the first of each nobody leaves: the same code without exits.
THRESHOLDS = {
    "confidence": (2.0, 0.95, 0.9, 0.8, 0.7),
    "patience": (99, 6, 4, 2),
    "movement": (0.0, 0.05, 0.1, 0.2, 0.3),
}
IDS = tf.TensorSpec([None, None], tf.int32, "input_ids")
LENGTHS = tf.TensorSpec([None], tf.int32, "lengths")
THRESHOLD = tf.TensorSpec([None], tf.float32, "threshold")


def load_with_exits(model_folder: str):
    """Loads the classifier.

    Raises:
        UserError: it has no exit heads.
    """
    loaded = load(model_folder)
    if not getattr(loaded.model, "exit_heads", None):
        raise UserError(f"--early_exit_model={model_folder} has no exit heads; train it with --early_exit")
    return loaded


def measure(
    model_folder: str, data: Path, folder: Path, computes: list[str], batch_sizes: tuple[int, ...], rounds: int
) -> list[dict]:
    """Accuracy, rows per second and their change against the plain float32 model, over SST-2's dev set.

    computes: the arithmetic to measure, float32 first.

    Raises:
        UserError: a model without exit heads.
    """
    loaded = load_with_exits(model_folder)
    model, tokenizer = loaded.model, loaded.tokenizer
    rows, labels = sst2_dev(data, tokenizer)
    results = []
    for batch_size in batch_sizes:
        # Single rows take long, and one in eight of them says enough about time.
        used = slice(None, None, 8 if batch_size == 1 else 1)
        batches = [pad(rows[used][i : i + batch_size]) for i in range(0, len(rows[used]), batch_size)]
        for compute in computes:
            signatures = _export(model, compute, _calibration(data, tokenizer), folder / f"{compute}-{batch_size}")
            variants = {"plain": None}
            variants |= {f"{rule} {value}": (rule, value) for rule, values in THRESHOLDS.items() for value in values}
            outputs, times = _time(signatures, batches, variants, rounds)
            for name in variants:
                correct = outputs[name]["logits"].argmax(axis=1) == labels[used]
                results.append({
                    "batch": batch_size,
                    "compute": compute,
                    "variant": name,
                    "accuracy": float(correct.mean()),
                    "points_lost": points_lost(results, batch_size, float(correct.mean())),
                    "steps": float(outputs[name].get("steps", np.array([len(model.exit_heads)])).mean()),
                    "rows_per_second": len(labels[used]) / times[name],
                    "ratio_to_plain": times["plain"] / times[name],
                })  # fmt: skip
    return results


def points_lost(results: list[dict], batch_size: int, accuracy: float) -> float:
    """Against the plain float32 model, which is measured first with every batch size: on rows of its own each."""
    plain = next((found["accuracy"] for found in results if found["batch"] == batch_size), accuracy)
    return 100 * (plain - accuracy)


def _calibration(data: Path, tokenizer, count: int = 128) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(data / "glue" / "SST-2" / "train.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line, _ in zip(file, range(count + 1), strict=False)][1:]
    ids, _, lengths = pad([[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in texts])
    return ids, lengths


def _export(model, compute: str, calibration, folder: Path):
    module = make_encoder(model, InferenceOptions(compute, "skipped"), calibration)
    module.head = dense(model.head, tf.float32)

    def plain(input_ids, lengths):
        return {"logits": module.head(module.pooled(input_ids, lengths))}

    signatures = {"plain": tf.function(plain, autograph=False).get_concrete_function(IDS, LENGTHS)}
    signatures |= {rule: exits_by(rule, module, model) for rule in THRESHOLDS}
    tf.saved_model.save(module, str(folder), signatures)
    return tf.saved_model.load(str(folder))


def exits_by(rule: str, module, model):
    """The graph of early exit by a rule, of (input_ids, lengths, threshold)."""

    def exits(input_ids, lengths, threshold):
        return module.early_exit(input_ids, lengths, None, model.exit_heads, threshold, ExitRule(name=rule))

    return tf.function(exits, autograph=False).get_concrete_function(IDS, LENGTHS, THRESHOLD)


def _time(loaded, batches, variants: dict, rounds: int) -> tuple[dict, dict]:
    """Outputs of all rows, and median seconds for all batches, by variant; variants take turns."""
    outputs, times = {}, {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, exit_by in variants.items():
            start, found = time.perf_counter(), []
            for ids, _, lengths in batches:
                inputs = {"input_ids": tf.constant(ids), "lengths": tf.constant(lengths)}
                if exit_by is None:
                    answer = loaded.signatures["plain"](**inputs)
                else:
                    rule, threshold = exit_by
                    answer = loaded.signatures[rule](**inputs, threshold=tf.fill([len(ids)], float(threshold)))
                found.append({key: value.numpy() for key, value in answer.items()})
            if turn:
                times[name].append(time.perf_counter() - start)
            outputs[name] = {key: np.concatenate([part[key] for part in found]) for key in found[0]}
    return outputs, {name: float(np.median(values)) for name, values in times.items()}
