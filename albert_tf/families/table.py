"""The table that describes a family of models, and the parts that several families share."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfrecords.base.errors import UserError


class Source(NamedTuple):
    """A variable's place in a checkpoint.

    Attributes:
        name: the tensor's name.
        transposed: whether it is transposed there.
        part: the number of the variable among `part[1]` variables that the tensor joins along its first axis.
        shape: the tensor's shape, where its axes differ from the variable's. A family's table names fields of the
            configuration.
    """

    name: str
    transposed: bool = False
    part: tuple[int, int] = (0, 1)
    shape: tuple = ()


# In tables of weights, a dense layer's or norm's name; (name, number, count) is a part of a joined layer.
Layer = str | tuple[str, int, int] | Source

# The heads' classes in transformers, after the family's name, by the kinds of models here.
HEADS = {
    "encoder": "Model",
    "pretrainer": "ForPreTraining",
    "words": "ForMaskedLM",
    "texts": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "choices": "ForMultipleChoice",
    "spans": "ForQuestionAnswering",
    "joint_spans": "ForQuestionAnswering",
}


def any_value(config: Any) -> bool:
    """Returns True: a condition of `Family.form` that every configuration meets."""
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of published models: how its files name what an encoder and its heads have.

    Attributes:
        model_types: values of `model_type` in config.json, the one that is written first.
        class_name: the start of its classes' names in transformers.
        prefix: what precedes the encoder's tensors in checkpoints with a head.
        other_prefixes: what does so in other programs' checkpoints.
        known_by: sets of keys that a configuration file without model_type has; () fits every file.
        config_file: a pattern of other names than config.json.
        keys: fields of AlbertConfig by key; None if the keys are the fields' names.
        fixed: the supported values of keys that change results and are not read.
        others: further keys that are known: those that `read` takes from the file's values, or without effect.
        fields: fields that config.json does not state.
        defaults: values that transformers takes for missing keys.
        is_factorized: whether `embedding_size` is a key; otherwise it is hidden_size.
        read: given a file's values and the fields read from it, returns all fields.
        written: further keys of config.json, each as a value or a function of the configuration.
        unwritten: fields that are not written, where `keys` is None.
        form: what a configuration needs to be of this family, by field: the allowed values or a condition.
        marker: the field in `form` that only this family sets.
        encoder: names of tensors in the encoder by the names of this package; "{i}" is a layer's number.
        heads: names of the heads' tensors.
        of_texts: names that differ in a checkpoint with a head for texts.
        decoder: the layer that scores words, whose kernel is a copy of the word embeddings if it is tied.
        word_act: the activation of the head for words; "" for that of the encoder.
        pair_task: what a head for pairs was trained for.
        classes: those of HEADS that differ.
        grouped_heads: the key for the number of heads of keys and values, which may be less than that of queries.
        needs_projection: whether a checkpoint has an identity where a model has no projection of its embeddings.
        bos_is_cls: whether bos and eos in config.json are [CLS] and [SEP].
        named: published configurations by name.
        aliases: other names of these.
    """

    model_types: tuple[str, ...]
    class_name: str
    prefix: str
    other_prefixes: tuple[str, ...] = ()
    known_by: tuple[tuple[str, ...], ...] = ()
    config_file: str = ""
    keys: Mapping[str, str] | None = None
    fixed: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    others: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_factorized: bool = False
    read: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]] = lambda values, fields: fields
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unwritten: tuple[str, ...] = ()
    form: Mapping[str, tuple | range | Callable[[Any], bool]]
    marker: str = ""
    encoder: Mapping[str, Layer]
    heads: Mapping[str, Layer]
    of_texts: Mapping[str, Layer] = dataclasses.field(default_factory=dict)
    decoder: str
    word_act: str = ""
    pair_task: str = "nsp"
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    grouped_heads: str = ""
    needs_projection: bool = False
    bos_is_cls: bool = False
    named: Mapping[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def meets(self, key: str, config: Any) -> bool:
        """Returns whether a configuration meets the condition of `form` for a field."""
        condition = self.form[key]
        return condition(config) if callable(condition) else getattr(config, key) in condition

    @property
    def word_table(self) -> str:
        """The name of the word embeddings in checkpoints, without a prefix."""
        return _source(self.encoder["embeddings/word_embeddings"]).name


def _source(layer: Layer) -> Source:
    return layer if isinstance(layer, Source) else Source(str(layer))


def tables(first: str, words: str, types: str = "token_type", positions: str = "position") -> dict[str, Layer]:
    """Returns the entries of embedding tables, whose names in files begin with `first`; "" leaves a table out."""
    own = {"word": words, "token_type": types, "position": positions}
    return {f"embeddings/{o}_embeddings": Source(f"{first}{t}_embeddings.weight") for o, t in own.items() if t}


def joined(layer: str) -> dict[str, Layer]:
    """Returns the entries of queries, keys and values that are one layer in files."""
    return {f"attention/{name}": (layer, part, 3) for part, name in enumerate(("query", "key", "value"))}


# The layers of BERT and of those that took them over.
BERT_LAYERS: dict[str, Layer] = {
    **tables("embeddings.", "word"),
    "embeddings/layer_norm": "embeddings.LayerNorm",
    **{f"attention/{name}": f"encoder.layer.{{i}}.attention.self.{name}" for name in ("query", "key", "value")},
    "attention/output": "encoder.layer.{i}.attention.output.dense",
    "attention/layer_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "feed_forward/intermediate": "encoder.layer.{i}.intermediate.dense",
    "feed_forward/output": "encoder.layer.{i}.output.dense",
    "feed_forward/layer_norm": "encoder.layer.{i}.output.LayerNorm",
    "pooler": "pooler.dense",
}
TASK_HEADS = {"classifier": "classifier", "span": "qa_outputs"}
# The heads of RoBERTa and of those that took them over.
ROBERTA_HEADS: dict[str, Layer] = TASK_HEADS | {
    "masked_lm/dense": "lm_head.dense",
    "masked_lm/layer_norm": "lm_head.layer_norm",
    "masked_lm/output_bias": Source("lm_head.bias"),
}
# A head for texts that has a layer of its own in place of the pooler.
OWN_POOLER: dict[str, Layer] = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}

# Keys that most families with names of their own share with AlbertConfig.
_SHARED = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings"
_SHARED += " initializer_range tie_word_embeddings"
_OF_BERT = " hidden_act type_vocab_size layer_norm_eps hidden_dropout_prob attention_probs_dropout_prob"
SHARED_KEYS, BERT_KEYS = ({key: key for key in keys.split()} for keys in (_SHARED, _SHARED + _OF_BERT))


def rotary_family(
    *,
    fields: Mapping[str, Any],
    form: Mapping[str, Any] = {},
    others: str = "",
    written: Mapping[str, Any] = {},
    **rest: Any,
) -> Family:
    """Makes a family with rotary positions that all layers share; its `form` holds all of `fields`."""
    fields = UNSHARED | {"position_type": "rotary", "feed_forward": "glu"} | fields
    free = dict.fromkeys(("rotary_theta", "rotary_factor"), any_value)
    return Family(
        fields=fields,
        others=f"{others} rope_parameters rope_scaling rope_theta head_dim",
        written={"rope_parameters": _written_rotary} | written,
        form={"is_plain": (True,)} | {key: (value,) for key, value in fields.items()} | free | form,
        marker="position_type",
        **rest,
    )


def read_rotary(values: Mapping[str, Any], fields: dict[str, Any], theta: float | None) -> dict[str, Any]:
    """Returns `fields` with those of the rotary positions that config.json's `values` describe.

    `theta` is the base if there is none. Raises UserError for positions that only other models have.
    """
    size, heads = values.get("head_dim"), fields.get("num_attention_heads")
    if size is not None and not (type(size) is type(heads) is int and size * heads == fields.get("hidden_size")):
        raise UserError(f"head_dim {size!r} is another architecture; it must be hidden_size / num_attention_heads")
    given = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(given, dict) or values.get("partial_rotary_factor") not in (None, 1):
        given = {"partial_rotary_factor": values.get("partial_rotary_factor"), "": given}
    own = {"rope_theta": values.get("rope_theta", theta)} | given
    kind = own.pop("rope_type", own.pop("type", "default"))
    if own.keys() - {"rope_theta", "factor"} or kind != ("linear" if "factor" in own else "default"):
        raise UserError(
            f"rotary positions {given!r} are another architecture; supported: rope_type default, linear with a factor"
        )
    return fields | {"rotary_theta": own["rope_theta"], "rotary_factor": own.get("factor", 1.0)}


def _written_rotary(config: Any) -> dict[str, Any]:
    factor = {} if config.rotary_factor == 1 else {"factor": config.rotary_factor}
    return {"rope_type": "linear" if factor else "default", "rope_theta": config.rotary_theta} | factor


BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
# What config.json does not state where blocks are not shared.
UNSHARED = dict(sharing="none")
# Fields that such families do not write, as each has one value.
OF_SHARING = (
    *("sharing", "factorization", "always_project", "position_offset"),
    *("num_hidden_groups", "inner_group_num", "embedding_size"),
)
