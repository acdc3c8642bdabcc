"""Accuracy of pre-trainers and of trivial baselines."""

from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from albert_tf.loading.load import load
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.training.start import check_length
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.reader import read_examples
from tfrecords.reading.manifest import read_manifest
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.run_evaluation import EvaluationSettings


def trivial_baselines(
    train_data: str, eval_data: str, batch_size: int = 64, max_eval_steps: int = 0, max_train_batches: int = 1000
) -> dict:
    """Returns the accuracies on `eval_data` of predicting the most frequent labels of `train_data`.

    Keys: masked_lm_accuracy and, for a pair task, sentence_order_accuracy or next_sentence_accuracy.
    """
    manifest = read_manifest(train_data)
    train_batches = max(1, min(max_train_batches, manifest["splits"]["train"]["examples"] // batch_size))
    train_tokens, train_labels = _answers(read_examples(train_data, batch_size, training=True).take(train_batches))
    eval_tokens, eval_labels = _answers(read_examples(eval_data, batch_size, training=False).take(max_eval_steps or -1))
    baselines = {}
    # Records may mask nothing.
    if len(train_tokens) and len(eval_tokens):
        baselines["masked_lm_accuracy"] = float(np.mean(eval_tokens == np.bincount(train_tokens).argmax()))
    if manifest["pair_task"] != "none":
        name = "next_sentence_accuracy" if manifest["pair_task"] == "nsp" else "sentence_order_accuracy"
        baselines[name] = float(np.mean(eval_labels == np.bincount(train_labels).argmax()))
    return baselines


def _answers(dataset) -> tuple[np.ndarray, np.ndarray]:
    tokens, labels = [], []
    for batch in dataset.as_numpy_iterator():
        tokens.append(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0])
        labels.append(batch["next_sentence_labels"].ravel())
    return np.concatenate(tokens), np.concatenate(labels)


def evaluate(
    model: keras.Model,
    eval_data: str,
    batch_size: int = 64,
    max_eval_steps: int = 0,
    tokenizer: Tokenizer | None = None,
) -> dict[str, float]:
    """Returns the loss and accuracies of a pre-trainer on the records `eval_data`.

    The records must be made by `tokenizer`; without one, only the vocabulary's size is checked. A `max_eval_steps` of 0
    reads all records.
    """
    config = model.encoder.config
    expected = {"vocab_size": config.vocab_size}
    if tokenizer is not None:
        # The embedding table may have more rows than the tokenizer has tokens.
        expected = {"vocab_size": tokenizer.vocab_size, "tokenizer_sha256": tokenizer.sha256}
    dataset = read_examples(eval_data, batch_size, training=False, expected=expected)
    check_length(dataset.element_spec["input_ids"].shape[1], config, "")
    if not model.compiled:
        # Keras's trainer under JAX computes operation by operation unless asked to compile.
        model.compile(jit_compile=keras.backend.backend() == "jax")
    return model.evaluate(dataset.take(max_eval_steps or -1), return_dict=True, verbose=0)


def evaluate_records(settings: "EvaluationSettings") -> None:
    """Prints the figures of a pre-trained model on held-out records, next to trivial baselines."""
    loaded = load(settings.model, depth=settings.depth)
    model, tokenizer = loaded.model, loaded.tokenizer
    if not isinstance(model, AlbertPretrainer):
        raise UserError(
            f"'{settings.model}' holds a {type(model).__name__}, which records do not measure; give --data_file=..."
        )
    if settings.output:
        files.make_output_dir(Path(settings.output).parent)
    figures = {
        "model": evaluate(model, settings.eval_data, settings.batch_size, settings.max_eval_steps, tokenizer),
        "baseline": trivial_baselines(
            settings.train_data, settings.eval_data, settings.batch_size, settings.max_eval_steps
        ),
    }
    if settings.output:
        files.write_json(settings.output, figures)
    for name, baseline in figures["baseline"].items():
        # A model of another pair task than the records', or of none, cannot predict theirs.
        value = f"{figures['model'][name]:7.2%}" if name in figures["model"] else "not measured: no task of this model;"
        print(f"{name:25} {value}   trivial baseline {baseline:7.2%}")
    print(f"{'loss':25} {figures['model']['loss']:7.4f}")
    if settings.output:
        print(f"wrote {settings.output}")
