"""What the teacher says once, kept on disk, is what it says."""

import itertools

import numpy as np

from albert_tf import AlbertEncoder
from albert_tf.compression.taught import taught
from albert_tf.models.text_student import TextStudent
from albert_tf.tasks.rows import FeatureRows, RaggedArray
from tests.albert_tf.tiny import small

CONFIG = small(initializer_range=0.3)


def test_the_teacher_is_asked_once_in_a_graph(tmp_path):
    random, splits, teacher = np.random.default_rng(0), np.array([0, 3, 10, 15]), AlbertEncoder(CONFIG, seed=1)
    ids = random.integers(5, 40, 15).astype("int32")
    tokens = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    rows = FeatureRows({name: RaggedArray(values, splits) for name, values in tokens.items()}, {}, 0)

    def asked(teacher, key):
        return taught(rows, teacher, ["states", "vectors"], [0, 2], 2, tmp_path, key)

    found = asked(teacher, "key")
    for number, (start, end) in enumerate(itertools.pairwise(splits)):
        row = {name: values[np.newaxis, start:end] for name, values in tokens.items()}
        (features,) = found.batch([number], end - start)
        states = np.stack(teacher(row, output_hidden_states=True)["hidden_states"])[[0, 2], 0]
        np.testing.assert_allclose(features["taught_states"][0], states.transpose(0, 2, 1), atol=2e-3)
    # It teaches what the teacher itself does.
    student = TextStudent(AlbertEncoder(CONFIG.replace(num_hidden_layers=1)), {"vectors": 1.0, "states": 1.0})
    student.learn_from(teacher, [0, 2])
    stored, live = student(features), student(row)
    for name in ("vectors", "states"):
        np.testing.assert_allclose(stored[name], live[name], rtol=1e-2)
    # Found again by its key, whoever is there to be asked.
    again, changed = (asked(AlbertEncoder(CONFIG), key) for key in ("key", "x"))
    first, again, changed = (one.batch([2], 5)[0]["taught_states"] for one in (found, again, changed))
    assert (first == again).all() and (first != changed).any()
