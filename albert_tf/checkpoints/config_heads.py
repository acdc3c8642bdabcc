from pathlib import Path
from typing import Any

import keras
from absl import logging

from albert_tf.checkpoints.sentence_folders import score_activation
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor, ClassesModel
from tfrecords.base.errors import UserError


def describe(model: keras.Model, values: dict[str, Any], folder: Path) -> None:
    """Sets class names and activation from config.json's `values`; raises UserError for unsupported values."""
    problem = values.get("problem_type")
    if isinstance(model, ClassesModel):
        names = class_names(values, folder / "config.json", model.num_classes)
        made_up = all(label == f"LABEL_{number}" for number, label in enumerate(names))
        model.name_classes(model.num_classes, None if made_up else names)
    if isinstance(model, (AlbertClassifier, AlbertRegressor)):
        classes = getattr(model, "num_classes", 1)
        activation = score_activation(values, folder, classes)
        is_several = problem == "multi_label_classification"
        if is_several and activation == "linear" and classes > 1:
            logging.warning("scores of '%s' are logits there; here each passes through a sigmoid", folder)
        if is_several and (activation is None or (activation == "linear" and classes > 1)):
            activation = "sigmoid"
    if isinstance(model, AlbertRegressor):
        class_names(values, folder / "config.json", 1)
        model.activation = activation or "linear"
        if activation is None:
            logging.warning(
                "'%s' does not say what its score passes through; the logit is given, and not its sigmoid as by the"
                " CrossEncoder of sentence-transformers",
                folder,
            )
    elif isinstance(model, AlbertClassifier):
        if problem == "regression":
            raise UserError(
                f"'{folder / 'config.json'}': problem_type 'regression' of {classes} numbers is not offered"
            )
        model.multi_label = activation == "sigmoid"
        if activation not in ("linear", "softmax", "sigmoid", None):
            logging.warning(
                "scores of '%s' pass through %s there; here are the softmax's probabilities", folder, activation
            )


def class_names(values: dict[str, Any], where: Path, num_classes: int) -> list[str]:
    """Returns unique class names, by default LABEL_0, LABEL_1, ...; raises UserError unless there are `num_classes`."""
    named = values.get("id2label")
    if not named:
        count = values.get("num_labels", num_classes)
        if count != num_classes:
            raise UserError(f"'{where}': num_labels is {count}, and the weights have {num_classes} classes")
        # The default names of transformers.
        return [f"LABEL_{number}" for number in range(num_classes)]
    if not isinstance(named, dict) or not all(isinstance(name, str | int | float) for name in named.values()):
        raise UserError(f"'{where}': id2label must hold names by class number, not {named!r}")
    if sorted(named, key=str) != sorted(map(str, range(num_classes))):
        raise UserError(
            f"'{where}': id2label names {len(named)} classes ({', '.join(map(str, list(named)[:5]))}), and the weights"
            f" have {num_classes}, numbered from 0; write a name for each"
        )
    names = [str(named[str(number)]) for number in range(num_classes)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        logging.warning("'%s': id2label names several classes %s; their numbers are added", where, ", ".join(twice))
        names = [f"{name} ({number})" if name in twice else name for number, name in enumerate(names)]
    return names
