"""A model's outputs for rows of different lengths."""

from typing import Any

import keras
import numpy as np

from albert_tf.tasks.rows import Rows
from albert_tf.training.batches import evaluation_batches


def predict(model: keras.Model, rows: Rows, batch_size: int, max_seq_length: int) -> list[Any]:
    """For each row what the model gives it, in the order of the rows: an array, or a dict of arrays.

    A row's arrays are as long as the batch was padded for; entries past its own length are of padding.
    """
    outputs: list[Any] = [None] * len(rows)
    for indices, features in evaluation_batches(rows, batch_size, max_seq_length):
        answers = model.predict_on_batch(features)
        for number, index in enumerate(indices):
            outputs[index] = keras.tree.map_structure(lambda leaf: np.asarray(leaf[number]), answers)  # noqa: B023
    return outputs
