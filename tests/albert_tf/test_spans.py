"""The span search against brute force, the joint head's rules, and p_mask."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from albert_tf import AlbertSpanPredictor
from albert_tf.models.heads import top_spans
from tests.albert_tf.depth_cases import alike, filled, small

LENGTH = 9
ENCODER = alike(small())


def row(**extra):
    ids = np.array([[2, 7, 8, 3, 9, 10, 11, 3, 0]] * 2, "int32")
    mask, segments = np.array([[1] * 8 + [0]] * 2, "int32"), np.array([[0] * 4 + [1] * 4 + [0]] * 2, "int32")
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments} | extra


@given(seed=st.integers(0, 10**6), starts=st.integers(1, 5), longest=st.integers(1, LENGTH))
def test_search_finds_what_brute_force_finds(seed, starts, longest):
    rng = np.random.default_rng(seed)
    start_scores, end_scores = (rng.normal(size=size).astype("float32") for size in (LENGTH, (starts, LENGTH)))
    index = np.argsort(-start_scores)[:starts].astype("int32")
    found = top_spans(start_scores[index][None], index[None], end_scores[None], count=3, max_answer_length=longest)
    legal = [
        (start_scores[s] + end_scores[i, e], s, e)
        for i, s in enumerate(index)
        for e in range(s, min(LENGTH, s + longest))
    ]
    best = sorted(legal, reverse=True)[:3]
    for n, (score, start, end) in enumerate(best):
        assert (found["start_index"][0, n], found["end_index"][0, n]) == (start, end)
        assert_allclose(found["score"][0, n], score, rtol=1e-5, atol=1e-6)
    assert (np.asarray(found["score"])[0, len(best) :] < -1e29).all()


@pytest.mark.parametrize("joint", [False, True])
def test_scores_lie_on_the_passage_and_the_first_token_only(joint):
    model = AlbertSpanPredictor(ENCODER, joint=joint, start_top=3, end_top=3)
    outputs = model(row(start_positions=np.array([4, 5])))
    allowed = np.array([1, 0, 0, 0, 1, 1, 1, 1, 0], bool)
    for name in ("start_log_probs", "end_log_probs"):
        scores = np.asarray(outputs[name])
        assert (scores[:, ~allowed] < -1e29).all() and (scores[:, allowed] > -20).all()
        assert_allclose(np.exp(scores).sum(axis=-1), 1, rtol=1e-5)
    masked = model(row(p_mask=np.array([[1, 1, 1, 1, 0, 0, 1, 1, 1]] * 2)))
    assert set(np.asarray(masked["start_log_probs"]).argmax(axis=-1)) <= {4, 5}


def test_joint_end_depends_on_the_start_and_is_one_function_in_training_and_search():
    model = filled(AlbertSpanPredictor(ENCODER, joint=True, start_top=4, end_top=4, max_answer_length=LENGTH))
    spans, ends = model(row())["spans"], []
    for start in (4, 6):
        taught = model(row(start_positions=np.full((2, 1), start)))
        ends.append(np.asarray(taught["end_log_probs"]))
        for first, last, score in zip(*(np.asarray(array)[0] for array in spans.values())):
            if first == start and score > -1e29:
                expected = taught["start_log_probs"][0, start] + taught["end_log_probs"][0, last]
                assert_allclose(score, expected, rtol=1e-5)
    assert np.abs(ends[0] - ends[1]).max() > 1e-3


@pytest.mark.parametrize("joint", [False, True])
def test_a_sequence_shorter_than_start_top(joint):
    model, whole = AlbertSpanPredictor(ENCODER, joint=joint), row(p_mask=np.zeros((2, LENGTH), "int32"))
    short = {name: values[:, :4] for name, values in whole.items()}
    assert sum(np.asarray(model(short)["spans"]["score"][0]) > -1e29) == 10
    signature = {name: tf.TensorSpec([None, None], values.dtype) for name, values in short.items()}
    graph = tf.function(model, input_signature=[signature])
    for features, count in ((short, 16), (whole, 25)):
        scores, eager = (call(features)["spans"]["score"] for call in (graph, model))
        assert scores.shape == eager.shape == (2, count)
        assert_allclose(scores, eager, rtol=1e-5)
