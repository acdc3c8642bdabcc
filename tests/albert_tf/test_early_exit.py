"""A head at every step: what is answered and what is stored; `test_exit_rules.py` has the loss and the rules."""

import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertEncoder
from albert_tf.checkpoints import load_huggingface, load_official, save_huggingface, save_official
from tests.albert_tf.exits import CONFIG, FEATURES, make

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def classifier():
    return make("classifier", True)


@pytest.mark.parametrize("walk", ["unrolled", "loop"])
def test_a_step_is_what_a_shallower_model_says(walk, classifier):
    """Shared blocks: the second exit of four steps is the only head of a model of two."""
    model = AlbertClassifier(AlbertEncoder(CONFIG, walk=walk), 4, early_exit=True)
    model.set_weights(classifier.get_weights())
    shallow = AlbertClassifier(CONFIG.replace(num_hidden_layers=2), 4)
    shallow.encoder.set_weights(classifier.encoder.get_weights())
    shallow.head.set_weights(classifier.exit_heads[1].get_weights())
    assert_allclose(model.exit_logits(FEATURES)[1], shallow(FEATURES), atol=1e-5)


@pytest.mark.parametrize("save, load", [(save_official, load_official), (save_huggingface, load_huggingface)])
def test_other_formats_keep_the_last_head(save, load, classifier, tmp_path):
    save(classifier, tmp_path)
    loaded = load(tmp_path)
    assert loaded.exit_heads == []
    assert_allclose(loaded(FEATURES), classifier(FEATURES), atol=1e-5)
