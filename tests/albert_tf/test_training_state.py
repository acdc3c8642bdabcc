"""What trains in a model, and what is frozen, is the same after it was saved and loaded or made anew."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf.checkpoints.formats import load_keras
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.training import portable_parts

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = portable_parts.CONFIG.replace(hidden_dropout_prob=0.1)
KINDS = ("classes", "early exit", "tags", "numbers", "choices", "spans", "joint spans", "words and pairs")
X = portable_parts.X
# Members that have adapters: the kind of model, and what its configuration has otherwise.
ADAPTED = {
    "shared block": ("classes", {}),
    "groups": ("joint spans", {"num_hidden_layers": 2, "num_hidden_groups": 2}),
    "own blocks": ("tags", {"num_hidden_layers": 2, "sharing": "none"}),
    "shared feed-forward": ("words and pairs", {"num_hidden_layers": 2, "sharing": "ffn"}),
    "depth": ("words and pairs", {"num_hidden_layers": 2, "depth_lora_rank": 2, "step_signal": "learned"}),
    "relative": ("permutation", {}),
}


def made(kind, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portable_parts, "CONFIG", CONFIG.replace(**changes))
        keras.utils.set_random_seed(1)
        return portable_parts.KINDS[kind][0]()


def train(model, kind, steps=1):
    for _ in range(steps):
        model.train_on_batch(*portable_parts.KINDS[kind][1])


def adapted(member="shared block", rank=2):
    kind, changes = ADAPTED[member]
    model = made(kind, **changes)
    model.encoder.enable_lora(rank)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    return model


def of_file(model, path):
    model.save(path / "a.keras")
    return keras.saving.load_model(path / "a.keras")


def assert_equal(one, other):
    for ours, theirs in zip(one.variables, other.variables, strict=True):
        assert_array_equal(ours, theirs, err_msg=ours.path)
    assert [variable.trainable for variable in one.variables] == [variable.trainable for variable in other.variables]


@pytest.mark.parametrize("member", ADAPTED)
@pytest.mark.few(2)
def test_adapters_go_on_as_if_never_interrupted(member, tmp_path):
    """Loaded twice between two steps: by weights, and by a file."""
    data = ADAPTED[member][0]
    straight, model, again = (adapted(member) for _ in range(3))
    first = [np.array(variable) for variable in straight.trainable_variables]
    train(straight, data, steps=2)
    train(model, data)
    model.save_weights(tmp_path / "a.weights.h5")
    again.load_weights(tmp_path / "a.weights.h5")
    model = of_file(again, tmp_path)
    train(model, data)
    assert_equal(model, straight)
    moved = [np.abs(np.array(now) - before).max() for now, before in zip(straight.trainable_variables, first)]
    factors = [move for move, one in zip(moved, straight.trainable_variables) if "lora_kernel" in one.path]
    assert len(factors) == 4 * len(straight.encoder.halves_of("attention")) and min(factors) > 0


def test_adapters_and_files_without_them(tmp_path):
    """Files hold the kernels with the adapters added, too: a model without adapters answers as the one with them."""
    model, plain = adapted(), made("classes")
    train(model, "classes")
    model.save(tmp_path / "a.keras")
    used = load_keras(tmp_path / "a.keras")
    assert_allclose(used(X), model(X), atol=1e-6)
    named_variables(used)  # As exports read them: the adapters are merged.
    model.save_weights(tmp_path / "adapted.weights.h5")
    plain.load_weights(tmp_path / "adapted.weights.h5")
    assert_allclose(plain(X), model(X), atol=1e-6)
    query = model.encoder.halves_of("attention")[0].query
    assert not plain.encoder.halves_of("attention")[0].query.lora_enabled
    # What was written without adapters is what adapters are added to; they begin anew, and train.
    train(model, "classes")
    plain.save_weights(tmp_path / "plain.weights.h5")
    model.load_weights(tmp_path / "plain.weights.h5")
    assert_array_equal(model(X), plain(X))
    before = np.array(query.kernel)
    train(model, "classes")
    assert np.abs(np.array(query.kernel) - before).max() > 1e-6
    with pytest.raises(Exception, match=r"adapter of rank 2 \(alpha 2\).*the model one of rank 3.*enable_lora\(2\)"):
        adapted(rank=3).load_weights(tmp_path / "adapted.weights.h5")


AGAIN = {
    "file": of_file,
    "clone": lambda model, path: keras.models.clone_model(model),
    "configuration": lambda model, path: type(model).from_config(model.get_config()),
}


def freeze(model, what):
    encoder = model.encoder
    parts = {"block": encoder.blocks[0], "embeddings": encoder.embeddings}
    parts["weight"] = encoder.embeddings.word_embeddings
    parts.get(what, encoder).trainable = False
    if what == "all but a block":
        encoder.trainable = True
        encoder.trainable = False
        encoder.blocks[-1].trainable = True
    return model


def states(model):
    layers = [layer.trainable for layer in model._flatten_layers() if not hasattr(layer, "is_folder")]
    return layers, [variable.trainable for variable in model.weights], len(model.trainable_variables)


@pytest.mark.parametrize("way", AGAIN)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_frozen_stays_frozen(kind, way, tmp_path):
    everything = ("encoder", "block", "embeddings", "all but a block", "weight")
    for what in everything if kind == "classes" else ("encoder", "block"):
        model = freeze(made(kind), what)
        assert 0 < len(model.trainable_variables) < len(model.weights)
        again = AGAIN[way](model, tmp_path)
        assert states(again) == states(model), what
        again.trainable = False
        again.trainable = True
        assert all(states(again)[0] + states(again)[1]), "unfrozen"
    assert "frozen" not in made(kind).get_config(), "what is not frozen has the configuration of before"
