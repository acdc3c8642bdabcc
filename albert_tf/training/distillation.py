"""Distillation by soft labels (Hinton et al. 2015)."""

import os

import keras
from keras import ops

from albert_tf.checkpoints.resizing import keep_pieces
from albert_tf.loading.hub import find_model
from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.models.base import share_of_batch
from albert_tf.models.classifiers import AlbertRegressor
from albert_tf.training.start import check_length
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.vocabularies.comparing import difference
from tfrecords.tokenizers.vocabularies.pruning import pieces_within


def distil(student: keras.Model, teacher: keras.Model, weight: float, temperature: float = 2.0) -> None:
    """Makes a compiled `student` minimise (1 - weight) * own loss + weight * distance from `teacher`'s outputs.

    `temperature` divides the logits of both models. The teacher is not saved with the student: call this again after
    loading.
    """
    teacher.trainable = False
    own_loss = student.compute_loss
    is_number = isinstance(student, AlbertRegressor)

    def compute_loss(x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = own_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        shown = keras.tree.map_structure(ops.stop_gradient, teacher(x, training=False))
        distance = _distance(y_pred, shown, sample_weight, temperature, is_number)
        of_rows = sample_weight is None or (isinstance(y_pred, dict) and "gates" not in y_pred)
        return (1 - weight) * loss + weight * share_of_batch(distance, "rows" if of_rows else "weights")

    student.compute_loss = compute_loss


def load_teacher(
    path: str | os.PathLike,
    student: keras.Model,
    tokenizer: Tokenizer,
    max_seq_length: int,
    labels: tuple[str, ...] | None,
) -> keras.Model:
    """Loads a fine-tuned teacher; if its vocabulary contains the student's, its other pieces are removed.

    Raises:
        UserError: teacher and student differ in outputs or token ids, or `max_seq_length` is beyond the teacher's.
    """
    if getattr(student, "multi_label", False):
        raise UserError("--teacher shows probabilities of one label a text; leave it out for --task=multilabel")
    loaded = load(path)
    teacher, own_tokenizer = loaded.model, loaded.tokenizer
    if type(teacher) is not type(student) or _answers(teacher) != _answers(student):
        raise UserError(f"--teacher={path} is {_answers(teacher)}, the student {_answers(student)}; they must be alike")
    if own_tokenizer is None or difference(own_tokenizer, tokenizer):
        kept = None if own_tokenizer is None else pieces_within(tokenizer, own_tokenizer)
        if kept is None:
            raise UserError(
                f"--teacher={path} has another tokenizer than the student, and not one that the student's was cut from;"
                " give the teacher's folder as --tokenizer, or a student that was made from it"
            )
        teacher = keep_pieces(teacher, kept)
    check_length(max_seq_length, teacher.encoder.config, path, "--max_seq_length")
    task = load_task(find_model(path))
    if task is not None and labels is not None and task["labels"] != list(labels):
        raise UserError(f"--teacher={path} has the labels {task['labels']}, the student {list(labels)}")
    return teacher


def _answers(model: keras.Model) -> str:
    kind = type(model).__name__
    if hasattr(model, "joint"):
        return f"{kind} with a {'joint' if model.joint else 'plain'} head"
    return f"{kind} with {model.head.units} outputs" if hasattr(model.head, "units") else kind


def _distance(given, shown, sample_weight, temperature: float, is_number: bool):
    if isinstance(given, dict) and "gates" in given:
        given = given["logits"]
    if isinstance(given, list):
        distances = [
            step * _distance(logits, shown, sample_weight, temperature, is_number)
            for step, logits in enumerate(given, 1)
        ]
        return sum(distances) / sum(range(1, len(distances) + 1))
    if isinstance(given, dict):
        return _span_distance(given, shown, temperature)
    if is_number:
        distance = ops.mean(ops.square(given - shown), axis=-1)
    else:
        distance = divergence(given, shown, temperature)
    if sample_weight is None:
        return ops.mean(distance)
    weights = ops.cast(sample_weight, distance.dtype)
    return ops.sum(distance * weights) / ops.maximum(ops.sum(weights), 1e-6)


def _span_distance(given: dict, shown: dict, temperature: float):
    both = [
        ops.mean(divergence(given[name], shown[name], temperature)) for name in ("start_log_probs", "end_log_probs")
    ]
    distance = sum(both) / 2
    if "answerable_logits" in given:
        logits = [output["answerable_logits"] for output in (given, shown)]
        pairs = [ops.stack([logit, ops.zeros_like(logit)], axis=-1) for logit in logits]
        distance = distance + ops.mean(divergence(pairs[0], pairs[1], temperature)) / 2
    return distance


def divergence(given, shown, temperature: float):
    """Returns T^2 * KL(softmax(shown / T) || softmax(given / T)) over the last axis, T = `temperature`.

    T^2 makes the gradients' scale independent of T (Hinton et al. 2015, section 2).
    """
    given, shown = (ops.log_softmax(ops.cast(logits, "float32") / temperature, axis=-1) for logits in (given, shown))
    return temperature**2 * ops.sum(ops.exp(shown) * (shown - given), axis=-1)
