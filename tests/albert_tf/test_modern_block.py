"""Pre-norm, GLU, rotary positions, RMS norm, no biases: each as its formula says, and next to transformers."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertEncoder
from albert_tf.analysis.cost import parameters
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf import depth_cases
from tests.albert_tf.depth_cases import FEATURES, TOKENS, alike

pytestmark = pytest.mark.usefixtures("eagerly")
RNG = np.random.default_rng(5)
MASK = FEATURES["input_mask"]
OPTIONS = {
    "norm_position": ("post", "pre"), "norm": ("layer_norm", "rms_norm"), "feed_forward": ("mlp", "glu"),
    "position_type": ("absolute", "rotary"), "use_bias": (True, False)
}  # fmt: skip
# Every pair of options occurs.
CHOSEN = ((0, 0, 0, 0, 0), (0, 1, 1, 1, 0), (1, 0, 1, 0, 1), (1, 1, 0, 1, 1), (0, 0, 0, 1, 1), (1, 1, 1, 0, 0))


def small(**changes):
    return depth_cases.small(**dict(num_hidden_layers=2, layer_norm_eps=1e-6) | changes)


class Reference:
    """The encoder in NumPy's float64, from the papers' formulas and the weights' names."""

    def __init__(self, encoder):
        self.config = encoder.config
        self.weights = {name: np.asarray(value, "float64") for name, value in named_variables(encoder).items()}

    def encode(self, input_ids, input_mask, segment_ids):
        pre = self.config.norm_position == "pre"
        tables = [self.weights[f"embeddings/{name}_embeddings"] for name in ("word", "token_type")]
        total = tables[0][input_ids] + tables[1][segment_ids]
        if self.config.position_type == "absolute":
            total = total + self.weights["embeddings/position_embeddings"][: input_ids.shape[1]]
        hidden = self.dense(self.norm(total, "embeddings/layer_norm"), "embeddings/projection")
        for half, name in [(self.attend, "attention_0"), (self.transform, "feed_forward_0")] * 2:
            norm = f"{name}/layer_norm"
            added = half(self.norm(hidden, norm) if pre else hidden, name, input_mask)
            hidden = hidden + added if pre else self.norm(hidden + added, norm)
        return self.norm(hidden, "final_norm") if pre else hidden

    def norm(self, x, name):
        if self.config.norm == "rms_norm":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.weights[f"{name}/scale"]
        x = x - x.mean(-1, keepdims=True)
        shift = self.weights[f"{name}/beta"] if self.config.use_bias else 0
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.weights[f"{name}/gamma"] + shift

    def dense(self, x, name):
        return x @ self.weights[f"{name}/kernel"] + (self.weights[f"{name}/bias"] if self.config.use_bias else 0)

    def attend(self, x, name, mask):
        heads, size = self.config.num_attention_heads, self.config.head_size
        result = np.zeros_like(x)
        for row, head in itertools.product(range(len(x)), range(heads)):
            part = slice(head * size, (head + 1) * size)
            query, key, value = (self.dense(x[row], f"{name}/{which}")[:, part] for which in ("query", "key", "value"))
            if self.config.position_type == "rotary":
                query, key = self.turn(query), self.turn(key)
            scores = query @ key.T / math.sqrt(size) - 1e9 * (1 - mask[row])
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            result[row][:, part] = scores / scores.sum(-1, keepdims=True) @ value
        return self.dense(result, f"{name}/output")

    def turn(self, x):
        """Su et al. 2021, equation 15: one 2 x 2 matrix for each position and pair of numbers."""
        half, turned = x.shape[1] // 2, np.zeros_like(x)
        for position, pair in itertools.product(range(len(x)), range(half)):
            angle = position * self.config.rotary_theta ** (-2 * pair / x.shape[1])
            matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            turned[position, [pair, pair + half]] = matrix @ x[position, [pair, pair + half]]
        return turned

    def transform(self, x, name, mask):
        inside = self.dense(x, f"{name}/intermediate")
        inside = 0.5 * inside * (1 + np.tanh(math.sqrt(2 / math.pi) * (inside + 0.044715 * inside**3)))
        if self.config.feed_forward == "glu":
            inside = inside * self.dense(x, f"{name}/gate")
        return self.dense(inside, f"{name}/output")


@pytest.mark.parametrize("places", CHOSEN)
def test_every_pair_of_options_is_what_the_formulas_say(places):
    config = small(rotary_theta=50.0, **{name: OPTIONS[name][place] for name, place in zip(OPTIONS, places)})
    encoder = alike(config)
    outputs = encoder(TOKENS)
    expected = Reference(encoder).encode(**TOKENS)
    assert_allclose(np.asarray(outputs["sequence_output"])[MASK > 0], expected[MASK > 0], atol=1e-5)
    assert_array_equal(outputs["hidden_states"][-1], outputs["sequence_output"])
    counted = parameters(config)
    assert counted.encoder + counted.pooler == encoder.count_params()


def test_rotary_positions_are_of_any_length_and_only_distances_count():
    encoder = alike(small(position_type="rotary", max_position_embeddings=4))
    ids = RNG.integers(5, 40, (1, 70)).astype("int32")
    positions = np.arange(70, dtype="int32")[None]
    found = encoder({"input_ids": ids})["sequence_output"]
    shifted = encoder({"input_ids": ids, "position_ids": positions + 100})["sequence_output"]
    assert_allclose(shifted, found, atol=1e-4)
    stretched = encoder({"input_ids": ids, "position_ids": 2 * positions})["sequence_output"]
    assert np.abs(np.asarray(stretched) - np.asarray(found)).max() > 0.01
    assert not [weight for weight in encoder.weights if "position" in weight.path]


def test_what_is_added_to_a_pre_norm_stream_starts_smaller_the_deeper_it_is():
    for depth in (2, 24):
        encoder = AlbertEncoder(
            small(hidden_size=64, num_hidden_layers=depth, intermediate_size=64, norm_position="pre")
        )
        for half in (encoder.halves_of("attention")[0], encoder.halves_of("feed_forward")[0]):
            # 0.88: of a normal distribution cut at two deviations.
            expected = 0.02 * 0.88 / math.sqrt(2 * depth)
            assert np.std(half.output_dense.kernel) == pytest.approx(expected, rel=0.05)
