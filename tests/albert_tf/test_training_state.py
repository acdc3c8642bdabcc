"""What trains in a model, and what is frozen, is the same after it was saved and loaded or made anew."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertSentenceEmbedder
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


def train(model, kind, epochs=1, callbacks=()):
    """By `fit` where callbacks are to be called; else by the same step, without what `fit` takes to begin."""
    data = portable_parts.KINDS[kind][1]
    if callbacks:
        options = {"batch_size": portable_parts.ROWS, "shuffle": False, "verbose": 0}
        model.fit(*data, epochs=epochs, callbacks=callbacks, **options)
        return
    for _ in range(epochs):
        model.train_on_batch(*data)


def adapted(member, rank=2):
    kind, changes = ADAPTED[member]
    model = made(kind, **changes)
    model.encoder.enable_lora(rank)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    return model


def by_weights(model, member, path):
    model.save_weights(path / "a.weights.h5")
    again = adapted(member)
    again.load_weights(path / "a.weights.h5")
    return again


def by_file(model, member, path):
    model.save(path / "a.keras")
    return keras.saving.load_model(path / "a.keras")


def assert_equal(one, other):
    for ours, theirs in zip(one.variables, other.variables, strict=True):
        assert_array_equal(ours, theirs, err_msg=ours.path)
    assert [variable.trainable for variable in one.variables] == [variable.trainable for variable in other.variables]


# Each way of saving, and each kind of kernel, in the default suite.
QUICK = {("shared block", by_weights), ("relative", by_file)}


@pytest.mark.parametrize(
    "member, saved",
    [
        pytest.param(member, saved, marks=[pytest.mark.slow] * ((member, saved) not in QUICK))
        for member in ADAPTED
        for saved in (by_weights, by_file)
    ],
)
def test_adapters_go_on_as_if_never_interrupted(member, saved, tmp_path):
    """Loaded twice between two epochs."""
    data = ADAPTED[member][0]
    straight, model = adapted(member), adapted(member)
    first = [np.array(variable) for variable in straight.trainable_variables]
    train(straight, data, epochs=2)
    train(model, data)
    for _ in range(2):
        model = saved(model, member, tmp_path)
    train(model, data)
    assert_equal(model, straight)
    moved = [np.abs(np.array(now) - before).max() for now, before in zip(straight.trainable_variables, first)]
    factors = [move for move, one in zip(moved, straight.trainable_variables) if "lora_kernel" in one.path]
    assert len(factors) == 4 * len(straight.encoder.halves_of("attention")) and min(factors) > 0


def callback(kind, path):
    if kind == "backup":
        return keras.callbacks.BackupAndRestore(path / "backup", delete_checkpoint=False)
    return keras.callbacks.ModelCheckpoint(path / f"a.{kind}", save_weights_only=kind == "weights.h5")


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["weights.h5", "keras", "backup"])
@pytest.mark.few(1)
def test_adapters_go_on_from_what_callbacks_wrote(kind, tmp_path):
    data = "classes"
    straight = adapted("shared block")
    train(straight, data, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        train(adapted("shared block"), data, epochs=3, callbacks=[callback(kind, tmp_path), Stop()])
    if kind == "keras":
        model = keras.saving.load_model(tmp_path / "a.keras")
    else:
        model = adapted("shared block")
    if kind == "backup":
        train(model, data, epochs=3, callbacks=[callback(kind, tmp_path)])
    else:
        if kind == "weights.h5":
            model.load_weights(tmp_path / "a.weights.h5")
        train(model, data, epochs=1)
    assert_equal(model, straight)


def test_adapters_and_files_without_them(tmp_path):
    """Files hold the kernels with the adapters added, too: a model without adapters answers as the one with them."""
    data = "classes"
    model, plain = adapted("shared block"), made("classes")
    train(model, data, epochs=2)
    model.save(tmp_path / "a.keras")
    used = load_keras(tmp_path / "a.keras")
    assert_allclose(used(X), model(X), atol=1e-6)
    named_variables(used)  # As exports read them: the adapters are merged.
    model.save_weights(tmp_path / "adapted.weights.h5")
    plain.load_weights(tmp_path / "adapted.weights.h5")
    assert_allclose(plain(X), model(X), atol=1e-6)
    assert not plain.encoder.halves_of("attention")[0].query.lora_enabled
    # What was written without adapters is what adapters are added to; they begin anew, and train.
    train(model, data)
    plain.save_weights(tmp_path / "plain.weights.h5")
    model.load_weights(tmp_path / "plain.weights.h5")
    assert_array_equal(model(X), plain(X))
    before = np.array(model.encoder.halves_of("attention")[0].query.kernel)
    train(model, data, epochs=2)
    assert np.abs(np.array(model.encoder.halves_of("attention")[0].query.kernel) - before).max() > 1e-6
    with pytest.raises(Exception, match=r"adapter of rank 2 \(alpha 2\).*the model one of rank 3.*enable_lora\(2\)"):
        adapted("shared block", rank=3).load_weights(tmp_path / "adapted.weights.h5")


def of_file(model, path):
    model.save(path / "a.keras")
    return keras.saving.load_model(path / "a.keras")


AGAIN = {
    "file": of_file,
    "clone": lambda model, path: keras.models.clone_model(model),
    "configuration": lambda model, path: type(model).from_config(model.get_config()),
}


def freeze(model, what):
    if what == "encoder":
        model.encoder.trainable = False
    elif what == "embeddings":
        model.encoder.embeddings.trainable = False
    elif what == "block":
        model.encoder.blocks[0].trainable = False
    elif what == "all but a block":
        model.encoder.trainable = False
        model.encoder.trainable = True
        model.encoder.trainable = False
        model.encoder.blocks[-1].trainable = True
    else:
        model.encoder.embeddings.word_embeddings.trainable = False
    return model


FROZEN = ("encoder", "embeddings", "block", "all but a block", "weight")


def states(model):
    layers = [layer.trainable for layer in model._flatten_layers() if not hasattr(layer, "is_folder")]
    return layers, [variable.trainable for variable in model.weights], len(model.trainable_variables)


@pytest.mark.parametrize("way", AGAIN)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(5)
def test_frozen_stays_frozen(kind, way, tmp_path):
    for what in FROZEN if kind == "classes" else ("encoder", "block"):
        model = freeze(made(kind), what)
        assert 0 < len(model.trainable_variables) < len(model.weights)
        again = AGAIN[way](model, tmp_path)
        assert states(again) == states(model), what
        again.trainable = False
        again.trainable = True
        assert states(again)[0] == [True] * len(states(again)[0]) and not states(again)[1].count(False), "unfrozen"
    assert "frozen" not in made(kind).get_config(), "what is not frozen has the configuration of before"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_a_frozen_encoder_goes_on_from_a_file_as_if_never_interrupted(kind, tmp_path):
    data = kind
    straight, model = freeze(made(kind), "encoder"), freeze(made(kind), "encoder")
    frozen = [np.array(variable) for variable in model.encoder.weights]
    for one in (straight, model):
        one.compile()
    train(straight, data, epochs=2)
    train(model, data)
    again = of_file(model, tmp_path)
    train(again, data)
    assert_equal(again, straight)
    for ours, theirs in zip(again.optimizer.variables, straight.optimizer.variables, strict=True):
        if len(theirs.shape):
            assert_array_equal(ours, theirs)
    for before, now in zip(frozen, again.encoder.weights, strict=True):
        assert_array_equal(now, before)


@pytest.mark.parametrize("has_adapters", [False, True])
def test_frozen_stays_frozen_within_a_functional_model(has_adapters, tmp_path):
    encoder = AlbertEncoder(CONFIG)
    if has_adapters:
        encoder.enable_lora(2)
    else:
        encoder.trainable = False
    inputs = {"input_ids": keras.Input((None,), dtype="int32", name="input_ids")}
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(encoder(inputs)["pooled_output"]))
    model = keras.Model(inputs, outputs)
    for again in (of_file(model, tmp_path), keras.models.clone_model(model)):
        assert len(again.trainable_variables) == len(model.trainable_variables) == 2 + 4 * has_adapters


def test_an_encoder_that_is_made_frozen_does_not_train():
    model = AlbertClassifier(AlbertEncoder(CONFIG, trainable=False), 2)
    assert len(model.trainable_variables) == 2
    assert not AlbertSentenceEmbedder(CONFIG, trainable=False).encoder.embeddings.trainable
    model.encoder.trainable = True
    assert len(model.trainable_variables) == len(model.weights)
