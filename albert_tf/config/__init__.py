import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from albert_tf.config.depth_plan import check_depth_plan
from albert_tf.config.extension import Extension, check_extensions, check_value
from albert_tf.config.registry import KEYS, REGISTRY, Spec, default_of, extensions_for
from tfrecords.base.errors import UserError, nearest, refuse
from tfrecords.base.files import write_json


@dataclasses.dataclass(frozen=True, init=False)
class AlbertConfig:
    """The configuration of an encoder; fields are named as in the published `albert_config.json`.

    Args:
        **values: fields, and keys of extensions, such as `halting="act"`. A file is a flat JSON object with these
            keys.

    Attributes:
        hidden_act: "gelu" is ALBERT's tanh approximation (modeling.py:299); "gelu_erf" is exact, like
            HuggingFace's "gelu".
        sharing: the part of a block that layers share: "all" (ALBERT), "attention", "ffn", or "none" (BERT).
        num_hidden_groups: number of groups; layers of a group share weights.
        inner_group_num: number of different blocks in a layer.
        factorization: "all" normalizes the summed embeddings and projects them with a bias (google-research/albert);
            "word" projects only word embeddings, without a bias (brightmart/albert_zh). Ignored without a projection.
        always_project: project even if `embedding_size` is `hidden_size`, as HuggingFace and keras-hub do.
        position_offset: the first token's position: 0, or 2 for RoBERTa (transformers modeling_roberta.py:142).
        depth_plan: the order in which blocks run, in place of groups; see `read_depth_plan`. "1+1x10+1" is a first
            block, a block that runs ten times, and a last block; num_hidden_layers must be the sum, 12. The plan is
            for the part of a block that `sharing` names; each step has its own weights for the other part.
        norm_position: "post" normalizes the outputs of attention and feed-forward layers after adding their inputs
            (ALBERT, BERT); "pre" normalizes the inputs, and the last step's output (Xiong et al. 2020, section 3).
        norm: "layer_norm", or "rms_norm", which subtracts no mean and has no bias (Zhang and Sennrich 2019).
        feed_forward: "mlp" computes output(hidden_act(intermediate(x))); "glu" computes
            output(hidden_act(intermediate(x)) * gate(x)): GeGLU for "gelu", SwiGLU for "silu" (Shazeer 2020).
        use_bias: whether dense layers and norms in embeddings and blocks have biases; pooler and heads always do,
            except for `pooler_norm` and a head without `word_transform`.
        without_bias: the dense layers of blocks that have no bias where `use_bias` is true: "", "inner" (between the
            input and the activation of the feed-forward network), or "dense" (all).
        embedding_norm: whether embeddings are normalized.
        first_norm: whether the first step's attention normalizes its input, with `norm_position` "pre".
        pooling: "cls" pools [CLS], "mean" the mean of all tokens; "late" is the mean of all pooled tokens.
        pooler_act: the pooler's activation.
        pooler_norm: whether the pooler has a norm after its activation and no bias, is the layer before the decoder of
            masked words, too, and transforms each token before a head for tokens or spans.
        word_transform: whether masked words pass through a dense layer and a norm before the decoder.
        tie_word_embeddings: whether masked words are scored by the word embeddings, and not by a table of the head.
        type_vocab_size: number of segment types; 0 for no segments.
        unused: (key, value) pairs for extensions that are off.

    Raises:
        UserError: a value is impossible, or two conflict.

    >>> config = AlbertConfig.named("albert_base_v2").replace(num_hidden_layers=6, sharing="ffn", halting="act")
    >>> config.num_steps, config.head_size, config.is_projected, config.halting
    (6, 64, True, 'act')
    """

    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    sharing: str = "all"
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    factorization: str = "all"
    always_project: bool = False
    position_offset: int = 0
    depth_plan: str = ""
    norm_position: str = "post"
    norm: str = "layer_norm"
    feed_forward: str = "mlp"
    use_bias: bool = True
    without_bias: str = ""
    embedding_norm: bool = True
    first_norm: bool = True
    pooling: str = "cls"
    pooler_act: str = "tanh"
    pooler_norm: bool = False
    word_transform: bool = True
    tie_word_embeddings: bool = True
    extensions: tuple["Extension", ...] = ()
    unused: tuple[tuple[str, Any], ...] = ()

    def __init__(self, **values: Any):
        own = {name: values.get(name, field.default) for name, field in _CORE.items()}
        if unknown := [name for name in values if name not in _CORE and name not in KEYS]:
            raise UserError(f"unknown configuration key '{unknown[0]}'{nearest(unknown[0], [*_CORE, *KEYS])}")
        rest = {name: value for name, value in values.items() if name in KEYS}
        extensions = extensions_for(rest)
        read = {key for one in extensions for key in REGISTRY[one.name].keys}
        unused = tuple((key, rest[key]) for key in KEYS if key in rest and key not in read and _is_set(key, rest[key]))
        for name, value in (own | {"extensions": extensions, "unused": unused}).items():
            object.__setattr__(self, name, value)
        _check(self)

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are no fields.
        if name not in KEYS:
            raise AttributeError(f"a configuration has no '{name}'")
        for values in (dict(self.unused), *map(vars, self.extensions)):
            if name in values:
                return values[name]
        return default_of(name)

    def extension(self, name: str) -> Any:
        """Returns the extension called `name`, or None."""
        return next((one for one in self.extensions if one.name == name), None)

    @functools.cached_property
    def spec(self) -> Spec:
        spec = Spec(has_types=self.type_vocab_size > 0, has_norm=self.embedding_norm)
        for one in self.extensions:
            spec = one.spec(spec)
        return spec

    @functools.cached_property
    def head_size(self) -> int:
        """The width of an attention head."""
        return self.hidden_size // self.num_attention_heads

    @functools.cached_property
    def max_seq_length(self) -> int:
        """The maximal tokens of a row: `max_position_embeddings` minus `position_offset`."""
        return self.max_position_embeddings - self.position_offset

    @property
    def num_steps(self) -> int:
        """The number of blocks that run in sequence: layers times `inner_group_num`."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def unpublished(self) -> list[str]:
        """The keys that are set here but that no published model has."""
        names = [name for name in _LATER if name != "position_offset" and getattr(self, name) != _CORE[name].default]
        published = {key for one in self.extensions for key in one.published}
        return names + [key for key in self._of_extensions() if key not in published]

    @property
    def is_projected(self) -> bool:
        """Whether a matrix maps embeddings to `hidden_size`."""
        return self.always_project or self.embedding_size != self.hidden_size

    @property
    def is_plain(self) -> bool:
        """Whether no blocks are shared and embeddings are not factorized."""
        return self.sharing == "none" and not self.is_projected and self.inner_group_num == 1

    @classmethod
    def named(cls, name: str) -> Self:
        """Returns the published configuration called `name`, or raises UserError.

        >>> AlbertConfig.named("bert_base_uncased").sharing
        'none'
        """
        return _reading().read_name(cls, name)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads the content of a configuration file of this library, the official code or HuggingFace.

        >>> AlbertConfig.from_dict({"model_type": "albert", "hidden_size": 96, "hidden_act": "gelu"}).hidden_act
        'gelu_erf'

        Raises:
            UserError: an unknown key, or a value that is impossible or asks for another architecture.
        """
        return _reading().read_values(cls, values)

    @classmethod
    def from_json(cls, path: str | os.PathLike, model_type: str | None = None) -> Self:
        """Reads a configuration file like `from_dict`; a missing size, such as hidden_size, is an error.

        `model_type` ("albert", "bert" or "roberta") is for a HuggingFace file without this key.
        """
        return _reading().read_file(cls, path, model_type)

    def to_dict(self) -> dict[str, Any]:
        """Returns a dictionary that `from_dict` reads."""
        later = [name for name in _LATER if getattr(self, name) != _CORE[name].default]
        return {name: getattr(self, name) for name in [*_FIRST, *later]} | self._of_extensions()

    def _of_extensions(self) -> dict[str, Any]:
        values = dict(self.unused)
        for one in self.extensions:
            fields = {field.name: field.default for field in dataclasses.fields(one)}
            values |= {key: getattr(one, key) for key, default in fields.items() if getattr(one, key) != default}
        return {key: values[key] for key in KEYS if key in values}

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Returns the configuration as JSON; if `path` is given, also writes it there."""
        if path is not None:
            write_json(Path(path), self.to_dict())
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def replace(self, **changes: Any) -> Self:
        """Returns a validated copy with some keys changed."""
        return type(self)(**(self.to_dict() | changes))

    def differing(self, other: "AlbertConfig") -> list[str]:
        """Returns the keys whose values differ."""
        keys = dict.fromkeys([*self.to_dict(), *other.to_dict()])
        return [key for key in keys if getattr(self, key) != getattr(other, key)]


def read_config(name: str) -> AlbertConfig:
    """Reads the configuration called `name`: a .json file, a model's folder, or a published or Hugging Face model.

    >>> read_config("albert_base_v2").hidden_size
    768
    """
    file = _reading().find_config(name)
    return AlbertConfig.named(name) if file is None else AlbertConfig.from_json(file)


def _reading() -> Any:
    # The encoder itself knows nothing of other code bases' files.
    from albert_tf.config import reading

    return reading


_CORE = {field.name: field for field in dataclasses.fields(AlbertConfig) if field.name not in ("extensions", "unused")}
_NAMES = list(_CORE)
# The keys of the first configurations, and later ones.
_FIRST, _LATER = _NAMES[: _NAMES.index("position_offset")], _NAMES[_NAMES.index("position_offset") :]
_CHOICES = {
    "hidden_act": ("gelu", "gelu_erf", "relu", "silu", "tanh", "linear", "relu6", "elu", "selu", "mish", "sigmoid"),
    "sharing": ("all", "attention", "ffn", "none"),
    "factorization": ("all", "word"),
    "norm_position": ("post", "pre"),
    "norm": ("layer_norm", "rms_norm"),
    "feed_forward": ("mlp", "glu"),
    "without_bias": ("", "inner", "dense"),
    "pooling": ("cls", "mean", "late"),
}
_CHOICES["pooler_act"] = _CHOICES["hidden_act"]

# Every one is listed before weights are read.
_MOST_STEPS = 4096


def _is_set(key: str, value: Any) -> bool:
    asked = next((entry for entry in REGISTRY.values() if entry.keys[0] == key), None)
    if asked:
        return not asked.is_off(value)
    default = default_of(key)
    return value != default or isinstance(value, bool) != isinstance(default, bool)


def _check(config: AlbertConfig) -> None:
    for name, field in _CORE.items():
        if not (name == "type_vocab_size" and type(config.type_vocab_size) is int and config.type_vocab_size == 0):
            check_value(field, getattr(config, name), _CHOICES)
    heads, groups, layers = config.num_attention_heads, config.num_hidden_groups, config.num_hidden_layers
    refuse({
        f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {heads}":
            config.hidden_size % heads,
        f"num_hidden_groups {groups} is over num_hidden_layers {layers}; some groups would never run":
            groups > layers,
        f"num_hidden_layers {layers} with inner_group_num {config.inner_group_num} runs {config.num_steps} blocks;"
        f" at most {_MOST_STEPS} are offered":
            config.num_steps > _MOST_STEPS,
        f"position_offset {config.position_offset} leaves no row of max_position_embeddings"
        f" {config.max_position_embeddings} for a token":
            config.max_seq_length < 1,
        "first_norm false leaves out a norm before attention of the first step alone; set norm_position 'pre' and"
        " sharing 'none'":
            not config.first_norm and (config.norm_position != "pre" or config.sharing not in ("none", "ffn")),
    })  # fmt: skip
    if config.depth_plan:
        check_depth_plan(config)
    if config.extensions or config.unused:
        check_extensions(config, {name: field.default for name, field in _CORE.items()})
