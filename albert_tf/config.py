"""One frozen description of an encoder: ALBERT, BERT, RoBERTa, XLNet, and everything between them."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

from albert_tf.config_reading import check_kind, is_xlnet, nearest, read_fields
from albert_tf.config_rules import check
from albert_tf.published import NAMED, OTHER_NAMES, XLNET_NAMES
from tfrecords.base.errors import UserError
from tfrecords.base.files import download_hint, read_json, write_json

# Fields of what begins as the model without it: weights of the one start the other.
BEGIN_AS_ALBERT = (
    *("depth_plan", "step_signal", "hyper_connections", "depth_lora_rank", "depth_lora_target", "gate_init"),
    *("halting", "halting_threshold", "ponder_cost"),
    *("equilibrium_solver", "equilibrium_tolerance", "equilibrium_max_steps", "equilibrium_gradient"),
    *("equilibrium_phantom_steps", "equilibrium_damping"),
    *("attention_window", "global_attention_every"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """Describes one encoder; the fields' names are those of the published `albert_config.json`.

    Sizes count elements; dropout fields are probabilities. `hidden_act` "gelu" is ALBERT's tanh approximation
    (google-research/albert modeling.py:299), "gelu_erf" the exact one that HuggingFace calls "gelu".

    Attributes:
        sharing: which half of a block is shared over depth: "all" (ALBERT), "attention", "ffn", or "none" (BERT).
        num_hidden_groups: the depth is cut into so many groups; what is shared is shared inside a group.
        inner_group_num: blocks in a row, each with its own weights, that make one depth step.
        factorization: "all" normalises the summed embeddings at `embedding_size` and projects them with a bias
            (google-research/albert); "word" projects the word embeddings alone, without a bias, and has all
            others at `hidden_size` (brightmart/albert_zh). Without effect where the two sizes are equal.
        always_project: project also where the two sizes are equal, as HuggingFace and keras-hub do.
        position_offset: the row of the position table that a text's first token has: 0, and of RoBERTa 2, since its
            tables count from the padding's id + 1 (transformers modeling_roberta.py:142). A model that has one is
            RoBERTa's to `checkpoints`.
        random_depth_min: the least number of layers of a training batch, each of which has its own, drawn from that to
            num_hidden_layers, so that the model can be run at any depth; 0: all have num_hidden_layers.
        depth_plan: which blocks run in which order, as `read_depth_plan` reads it, in place of groups and inner groups:
            "1+1x10+1" is a first block, one that runs ten times, and a last one. It must run num_hidden_layers blocks;
            `sharing` says which halves of a block follow it, the other half being every step's own.
        step_signal: what is added to every token before a step: "none", "learned", "sinusoid"
            (extensions/step_signal.py).
        hyper_connections: how many residual streams connect the steps, 2 or more, or 0
            (extensions/hyper_connections.py).
        depth_lora_rank: rank of what a shared dense layer's weights differ by from step to step; 0: they do not
            (extensions/depth_lora.py).
        depth_lora_target: whose dense layers: "attention", "ffn" or "both".
        gate_init: what learned gates of extensions begin with: 0: they are closed and the model is exactly the one
            without; 1: the published form.
        halting: whether tokens halt: "none", "act" (Graves) or "act_t2t" (tensor2tensor) (extensions/halting.py).
        halting_threshold: how much short of 1 the probabilities of a token that halts add up to.
        ponder_cost: what a step of a token adds to the loss.
        equilibrium_solver: "fixed_point" or "anderson": the repeated blocks are run until they have come to a fixed
            point, in place of the plan's number of times (extensions/equilibrium.py); "none": they are not.
        equilibrium_tolerance: a row has converged when a step moves it by less, relative to its length; 0: it is not
            asked, all steps are made.
        equilibrium_max_steps: steps after which a row ends that has not converged.
        equilibrium_gradient: "phantom", of so many more steps, or "implicit", the exact one of the fixed point.
        equilibrium_phantom_steps: how many; with tolerance 0 they are the last of `equilibrium_max_steps`.
        equilibrium_damping: which part of a phantom step is taken, above 0 and at most 1.
        norm_position: "post" normalises each half's sum with its input (ALBERT, BERT); "pre" each half's input, and
            once what the last step gives (Xiong et al. 2020, section 3).
        norm: "layer_norm", or "rms_norm", which neither subtracts a mean nor shifts (Zhang and Sennrich 2019).
        feed_forward: "mlp" is output(hidden_act(intermediate(x))), "glu" output(hidden_act(intermediate(x)) * gate(x)):
            with "gelu" GeGLU, with "silu" SwiGLU (Shazeer 2020). `intermediate_size` is the width of both products: a
            glu has half as many weights again as an mlp of the same.
        position_type: "absolute" adds a learned vector for each position; "rotary" has none, and turns queries and keys
            by their positions (Su et al. 2021, section 3.2), "relative" scores distances and segments as XLNet does
            (extensions/relative), whose embeddings have no layer norm and whose attention no biases. Both take
            rows of any length: `max_position_embeddings` is no more than what the commands take for the longest.
        rotary_theta: base of the wavelengths, 2 pi theta**(2i / head_size) tokens for pair i.
        use_bias: whether the dense layers of embeddings and blocks add a bias, and their layer norms; the pooler and
            heads have theirs in any case.
        attention_window: to how many places on each side a token attends, beside the first token, which attends to all
            (extensions/window.py); 0: all attend to all. Rows of up to so many tokens and one are as without.
        global_attention_every: every so many steps, from the first on, all attend to all even so; 0: never.
        attention_type: of relative positions: "bi": all attend to all, "uni": no token to what is behind it.
        clamp_length: the largest distance that relative positions tell apart; 0: there is none.
        memory_length: how many places before a row its tokens attend to as they were in the rows before; 0: none. With
            it the encoder gives the memory that the next rows are to be given.
        reuse_length: how many of a row's first tokens are remembered; 0: all.
        untie_biases: whether the position, content and segment biases of a shared block are every step's own.

    Raises:
        UserError: a value is impossible; the message names it.

    >>> config = AlbertConfig.named("albert_base_v2").replace(num_hidden_layers=6, sharing="ffn")
    >>> config.num_steps, config.head_size, config.is_projected
    (6, 64, True)
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
    random_depth_min: int = 0
    depth_plan: str = ""
    step_signal: str = "none"
    hyper_connections: int = 0
    depth_lora_rank: int = 0
    depth_lora_target: str = "both"
    gate_init: float = 0.0
    halting: str = "none"
    halting_threshold: float = 0.01
    ponder_cost: float = 0.01
    equilibrium_solver: str = "none"
    equilibrium_tolerance: float = 1e-3
    equilibrium_max_steps: int = 30
    equilibrium_gradient: str = "phantom"
    equilibrium_phantom_steps: int = 5
    equilibrium_damping: float = 1.0
    norm_position: str = "post"
    norm: str = "layer_norm"
    feed_forward: str = "mlp"
    position_type: str = "absolute"
    rotary_theta: float = 10000.0
    use_bias: bool = True
    attention_window: int = 0
    global_attention_every: int = 0
    attention_type: str = "bi"
    clamp_length: int = 0
    memory_length: int = 0
    reuse_length: int = 0
    untie_biases: bool = False

    def __post_init__(self) -> None:
        check(self)

    @property
    def head_size(self) -> int:
        """Gives the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_seq_length(self) -> int:
        """Gives the length of the longest row, in tokens: all positions but those before `position_offset`."""
        return self.max_position_embeddings - self.position_offset

    @property
    def ends_with_cls(self) -> bool:
        """Tells whether the token that stands for a row is its last, as XLNet's [CLS] is, and not its first."""
        return self.position_type == "relative"

    @property
    def num_steps(self) -> int:
        """Counts the blocks executed one after another: layers times inner groups."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def extensions(self) -> list[str]:
        """Lists the fields that ask for what no published ALBERT, BERT, RoBERTa or XLNet has."""
        known = _OF_XLNET if self.position_type == "relative" else ()
        fields = [field for field in _EXTENSIONS if field.name not in known]
        return [field.name for field in fields if getattr(self, field.name) != field.default]

    @property
    def is_projected(self) -> bool:
        """Tells whether embeddings pass through a matrix to reach `hidden_size`."""
        return self.always_project or self.embedding_size != self.hidden_size

    @classmethod
    def named(cls, name: str) -> Self:
        """Gives the published configuration called `name`.

        >>> AlbertConfig.named("bert_base_uncased").sharing
        'none'

        Raises:
            UserError: none is; the message names the nearest.
        """
        name = OTHER_NAMES.get(name, name)
        if hint := download_hint(name):
            raise UserError(f"no configuration is called '{name}'; {hint}/config.json")
        if name not in NAMED:
            raise UserError(f"no configuration is called '{name}'{nearest(name, NAMED)}; known: {', '.join(NAMED)}")
        return cls(**cast(dict[str, Any], NAMED[name]))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads our own fields, google's files of an ALBERT or BERT, XLNet's, or HuggingFace's of these and RoBERTa.

        >>> AlbertConfig.from_dict({"model_type": "albert", "hidden_size": 96, "hidden_act": "gelu"}).hidden_act
        'gelu_erf'

        Raises:
            UserError: an unknown key, a key whose value asks for another architecture, or an impossible value.
        """
        return cls._read(values, "")

    @classmethod
    def _read(cls, values: Mapping[str, Any], where: str) -> Self:
        return cls(**read_fields(values, {field.name: field.default for field in dataclasses.fields(cls)}, where))

    @classmethod
    def from_json(cls, path: str | os.PathLike, model_type: str | None = None) -> Self:
        """Reads a configuration file; see `from_dict`. Errors name the file; one that lacks a size is damaged.

        Args:
            path: the file.
            model_type: "albert", "bert" or "roberta" where the file is known to be HuggingFace's; what it says itself
                goes first.
        """
        values = read_json(path)
        if not isinstance(values, dict):
            raise UserError(f"'{path}' holds no JSON object")
        if model_type is not None:
            values.setdefault("model_type", model_type)
        said = {XLNET_NAMES.get(key) for key in values} if is_xlnet(values) else values.keys()
        missing = [key for key in _SIZES if key not in said]
        try:
            check_kind(values)
            if not missing:
                return cls._read(values, str(path))
        except UserError as error:
            raise UserError(f"'{path}': {error}") from error
        kinds = values.get("architectures") or []
        raise UserError(f"'{path}' lacks {', '.join(missing)}{f'; it describes a {kinds[0]}' if kinds else ''}")

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields, which `from_dict` reads; those that came later only where they say something.

        So descriptions of models that have no use for them stay what they were, and runs of before go on.
        """
        later = [field.name for field in _LATER if getattr(self, field.name) != field.default]
        return {name: getattr(self, name) for name in [*_FIRST, *later]}

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Gives the JSON text that `from_json` reads; also writes it to `path` where one is given."""
        if path is not None:
            write_json(Path(path), self.to_dict())
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def replace(self, **changes: Any) -> Self:
        """Makes a copy with some fields changed, checked like a new one."""
        unknown = changes.keys() - {field.name for field in dataclasses.fields(self)}
        for key in sorted(unknown):
            raise UserError(f"unknown configuration key '{key}'{nearest(key, dataclasses.asdict(self))}")
        return dataclasses.replace(self, **changes)


def read_config(name_or_file: str) -> AlbertConfig:
    """Reads a .json file, or finds the published configuration of that name.

    >>> read_config("albert_base_v2").hidden_size
    768
    """
    return AlbertConfig.from_json(name_or_file) if name_or_file.endswith(".json") else AlbertConfig.named(name_or_file)


_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_FIELDS = dataclasses.fields(AlbertConfig)
_NAMES = [field.name for field in _FIELDS]
# What the first configurations were written with, what came later, and of that what no published model has.
_FIRST, _LATER = _NAMES[: _NAMES.index("position_offset")], _FIELDS[_NAMES.index("position_offset") :]
_EXTENSIONS = _FIELDS[_NAMES.index("depth_plan") :]
_OF_XLNET = ("position_type", "attention_type", "clamp_length", "memory_length", "reuse_length")
