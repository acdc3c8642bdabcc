"""Every model trains, answers, and reads the features that it knows; what it cannot do it says in a line."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.special import log_softmax

from albert_tf import AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder
from albert_tf.checkpoints.formats import load_keras
from tests.albert_tf.tiny import KINDS, LENGTH, POOLED, ROWS, assert_alike, batch, labels, small
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
# From the dearest to the cheapest.
HEADS = [kind for kind in KINDS if kind not in ("encoder", "embedder of [CLS]")][::-1]


def loss_by_hand(kind, outputs, features, targets):
    if "spans" in kind:
        found = -np.mean([outputs["start_log_probs"][:, 4], outputs["end_log_probs"][:, 4]])
        if kind == "spans":
            return found
        odds = np.asarray(outputs["answerable_logits"]) * (1 - 2 * features["is_impossible"])
        return found + 0.5 * np.mean(np.log1p(np.exp(odds)))
    logits = np.asarray(outputs)
    if kind in ("regressor", "embedder"):
        return np.mean(np.square(np.squeeze(logits) - targets[0]))
    return -np.mean(np.take_along_axis(log_softmax(logits, axis=-1), targets[0][..., None], axis=-1))


def trained(kind):
    """A model compiled by its defaults whose loss is the task's by hand, and falls."""
    keras.utils.set_random_seed(1)
    model = KINDS[kind](small(num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    more, targets = labels(kind)
    features = batch(kind) | more
    model.compile(**({"loss": "mse"} if "embedder" in kind else {}))
    # Theirs is for weights that were pre-trained.
    model.optimizer.learning_rate = 3e-3
    data = dict(zip(("x", "y", "sample_weight"), (features, *targets)))
    if kind != "pretrainer":
        found = model.test_on_batch(**data, return_dict=True)["loss"]
        assert found == pytest.approx(loss_by_hand(kind, model(features), features, targets), rel=1e-5)
    history = model.fit(**data, epochs=2, batch_size=ROWS, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert len(history) > 1 or "embedder" in kind, "a metric besides the loss"
    return model


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.few(1)
def test_trains_in_a_graph(kind, in_graphs):
    trained(kind)


# A classifier's loss is tried in a graph above, and choices have the same.
# A plain span head's is a part of a joint one's.
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("classifier", "spans", "embedder", "choices")))
        for kind in HEADS
    ],
)
def test_compile_without_arguments_trains_and_is_loaded_with_its_optimizer(kind, tmp_path):
    model = trained(kind)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_alike(again(batch(kind)), model(batch(kind)), atol=0)
    assert again.get_config() == model.get_config() == type(model).from_config(model.get_config()).get_config()
    assert type(again.optimizer) is type(model.optimizer) and int(again.optimizer.iterations) == 2
    for ours, theirs in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        # Scalars besides the counter are figures of the last update, which no file holds.
        if len(theirs.shape):
            assert_array_equal(ours, theirs)


@pytest.mark.parametrize("pair_task, prefix", [("sop", "sentence_order"), ("nsp", "next_sentence")])
def test_figures_of_pretraining_do_not_depend_on_the_batches(pair_task, prefix):
    model, rows = AlbertPretrainer(small(), pair_task=pair_task), batch("pretrainer") | labels("pretrainer")[0]
    rows["masked_lm_weights"] = np.array([[1, 1], [1, 0], [0, 0], [1, 1]], "float32")
    model.compile()
    whole, apart = (model.evaluate(rows, batch_size=size, verbose=0, return_dict=True) for size in (ROWS, 1))
    assert apart == pytest.approx(whole, rel=1e-5)
    assert set(whole) == {"loss"} | {
        f"{task}_{name}" for task in ("masked_lm", prefix) for name in ("loss", "accuracy")
    }


def test_a_foreign_keras_file_is_refused(tmp_path):
    with refused(r"no Keras model .*model\.keras"):
        load_keras(tmp_path)
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "model.keras")
    with refused("Sequential, which is no model of this package"):
        load_keras(tmp_path)


def test_unknown_choices_are_named():
    encoder, bare = AlbertEncoder(small()), AlbertEncoder(small(), pooler=False)
    needs_pooler = [(lambda kind=kind: KINDS[kind](bare), "needs an encoder with a pooler") for kind in POOLED[1:]]
    for make, message in (
        *needs_pooler,
        (lambda: AlbertPretrainer(encoder, pair_task="order"), "pair_task 'order'"),
        (lambda: AlbertSentenceEmbedder(encoder, pooling="median"), "pooling 'median'"),
        (lambda: AlbertEncoder(small(), walk="spiral"), "walk 'spiral'"),
        (lambda: KINDS["classifier"]("albert_base_v2"), "needs an AlbertEncoder or an AlbertConfig, not a str"),
        (lambda: KINDS["classifier"](KINDS["regressor"](encoder)), r"not a AlbertRegressor; give its \.encoder"),
        (lambda: KINDS["classifier"](encoder, labels=["a", "b"]), "2 labels for 3 classes: a, b"),
    ):
        with refused(message):
            make()


@pytest.mark.parametrize("kind, offset", [("encoder", 2), ("choices", 0)])
def test_a_sequence_over_the_positions_is_one_clear_line(kind, offset):
    changes = {"position_offset": offset, "sharing": "none", "embedding_size": 16} if offset else {}
    model = KINDS[kind](small(num_hidden_layers=1, max_position_embeddings=LENGTH - 1 + offset, **changes))
    table = "7" if not offset else "9 - 2"
    for call in (model, lambda x: model.predict(x, verbose=0)):
        with refused(f"^a sequence of 8 tokens is over max_position_embeddings {table}; cut it$"):
            call(batch(kind))
    model({feature: values[..., :-1] for feature, values in batch(kind).items()})


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_names_are_the_same_features_and_unknown_ones_are_refused(kind):
    model, x = KINDS[kind](small(num_hidden_layers=1)), batch(kind)
    theirs = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    renamed = {theirs.get(key, key): value for key, value in x.items()}
    assert_alike(model(renamed), model(x), atol=0)
    mask = x["input_mask"]
    for features, message in (
        (x | {"input_msk": mask}, "no model knows a feature 'input_msk'; did you mean 'input_mask'"),
        (x | {"attention_mask": mask}, "attention_mask and input_mask, which are the same"),
        ({"input_mask": mask}, "no input_ids, only input_mask"),
    ):
        with refused(message):
            model(features)
    if kind == "classifier":
        model.compile()
        with refused("did you mean 'segment_ids'"):
            model.fit(x | {"segment_id": mask}, np.zeros(ROWS), verbose=0)
