"""One frozen description of an encoder: ALBERT, BERT, RoBERTa, and everything between them."""

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, cast

from albert_tf.depth_plan import read_depth_plan
from albert_tf.published import IGNORED_KEYS, MUST_EQUAL, NAMED, NEARLY, OTHER_NAMES, ROBERTA_TYPES
from tfrecords.base.errors import UserError
from tfrecords.base.files import download_hint, read_json, write_json

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "silu", "tanh", "linear", "relu6", "elu", "selu", "mish", "sigmoid")
SHARING = ("all", "attention", "ffn", "none")
HALTING = ("none", "act", "act_t2t")
STEP_SIGNALS = ("none", "learned", "sinusoid")
# Fields of what begins as the model without it: weights of the one start the other.
BEGIN_AS_ALBERT = (
    *("depth_plan", "step_signal", "hyper_connections", "depth_lora_rank", "depth_lora_target", "gate_init"),
    *("halting", "halting_threshold", "ponder_cost"),
    *("equilibrium_solver", "equilibrium_tolerance", "equilibrium_max_steps", "equilibrium_gradient"),
    *("equilibrium_phantom_steps", "equilibrium_damping"),
)
LORA_TARGETS = ("attention", "ffn", "both")
FACTORIZATION = ("all", "word")
EQUILIBRIUM_SOLVERS = ("none", "fixed_point", "anderson")
EQUILIBRIUM_GRADIENTS = ("phantom", "implicit")
# What gives each step something of its own, or asks for states on the way: a fixed point has neither.
_NOT_WITH_EQUILIBRIUM = ("step_signal", "hyper_connections", "depth_lora_rank", "halting", "random_depth_min")
NORM_POSITIONS = ("post", "pre")
NORMS = ("layer_norm", "rms_norm")
FEED_FORWARDS = ("mlp", "glu")
POSITION_TYPES = ("absolute", "rotary")


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
        step_signal: what is added to every token before a step: "none", "learned", "sinusoid" (layers/step_signal.py).
        hyper_connections: how many residual streams connect the steps, 2 or more, or 0 (layers/hyper_connections.py).
        depth_lora_rank: rank of what a shared dense layer's weights differ by from step to step; 0: they do not
            (layers/depth_lora.py).
        depth_lora_target: whose dense layers: "attention", "ffn" or "both".
        gate_init: what learned gates of extensions begin with: 0: they are closed and the model is exactly the one
            without; 1: the published form.
        halting: whether tokens halt: "none", "act" (Graves) or "act_t2t" (tensor2tensor) (layers/halting.py).
        halting_threshold: how much short of 1 the probabilities of a token that halts add up to.
        ponder_cost: what a step of a token adds to the loss.
        equilibrium_solver: "fixed_point" or "anderson": the repeated blocks are run until they have come to a fixed
            point, in place of the plan's number of times (layers/equilibrium_walk.py); "none": they are not.
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
            by their positions (Su et al. 2021, section 3.2), in rows of any length: then `max_position_embeddings` is
            no more than what the commands take for the longest.
        rotary_theta: base of the wavelengths, 2 pi theta**(2i / head_size) tokens for pair i.
        use_bias: whether the dense layers of embeddings and blocks add a bias, and their layer norms; the pooler and
            heads have theirs in any case.

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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        _check_choice("hidden_act", self.hidden_act, ACTIVATIONS)
        _check_choice("sharing", self.sharing, SHARING)
        _check_choice("factorization", self.factorization, FACTORIZATION)
        _check_choice("norm_position", self.norm_position, NORM_POSITIONS)
        _check_choice("norm", self.norm, NORMS)
        _check_choice("feed_forward", self.feed_forward, FEED_FORWARDS)
        _check_choice("position_type", self.position_type, POSITION_TYPES)
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            raise UserError(
                f"num_hidden_groups {self.num_hidden_groups} is over num_hidden_layers {self.num_hidden_layers};"
                " some groups would never run"
            )
        if self.max_seq_length < 1:
            raise UserError(
                f"position_offset {self.position_offset} leaves no row of max_position_embeddings"
                f" {self.max_position_embeddings} for a token"
            )
        _check_choice("step_signal", self.step_signal, STEP_SIGNALS)
        _check_choice("depth_lora_target", self.depth_lora_target, LORA_TARGETS)
        if self.gate_init > 1:
            raise UserError(f"gate_init must be from 0 to 1, not {self.gate_init}")
        _check_choice("halting", self.halting, HALTING)
        if self.halting_threshold >= 1:
            raise UserError(f"halting_threshold must be below 1, not {self.halting_threshold}")
        if self.hyper_connections == 1:
            raise UserError("hyper_connections 1 leaves no streams to choose from; give 2 or more, or 0 for none")
        if self.position_type == "rotary" and self.head_size % 2:
            raise UserError(f"position_type 'rotary' turns pairs of numbers; a head of {self.head_size} is odd")
        if self.position_type == "rotary" and self.position_offset:
            raise UserError("position_offset counts rows of a table of positions, and position_type 'rotary' has none")
        if self.rotary_theta <= 0:
            raise UserError(f"rotary_theta must be above 0, not {self.rotary_theta}")
        if self.depth_plan:
            self._check_depth_plan()
        if self.random_depth_min > self.num_hidden_layers:
            raise UserError(
                f"random_depth_min {self.random_depth_min} is over num_hidden_layers {self.num_hidden_layers}"
            )
        if self.random_depth_min and self.halting != "none":
            raise UserError("random_depth_min and halting exclude each other; leave one out")
        self._check_depth_lora()
        self._check_equilibrium()

    def _check_depth_plan(self) -> None:
        runs = sum(part.blocks * part.repeats for part in read_depth_plan(self.depth_plan))
        if runs != self.num_hidden_layers:
            raise UserError(
                f"depth_plan '{self.depth_plan}' runs {runs} blocks, num_hidden_layers is {self.num_hidden_layers};"
                " the two must agree"
            )
        if self.num_hidden_groups > 1 or self.inner_group_num > 1:
            raise UserError("depth_plan takes the place of num_hidden_groups and inner_group_num; leave these at 1")
        if self.sharing == "none":
            raise UserError("depth_plan says which blocks are shared, sharing 'none' shares none; leave one out")

    def _check_depth_lora(self) -> None:
        halves = {"all": ("attention", "ffn", "both"), "attention": ("attention", "both"), "ffn": ("ffn", "both")}
        repeats = self.num_hidden_groups < self.num_hidden_layers
        if self.depth_plan:
            repeats = any(part.repeats > 1 for part in read_depth_plan(self.depth_plan))
        if self.depth_lora_rank and not (repeats and self.depth_lora_target in halves.get(self.sharing, ())):
            raise UserError(
                f"depth_lora_rank {self.depth_lora_rank} with depth_lora_target '{self.depth_lora_target}' needs blocks"
                " that several steps share there, and this configuration has none; leave it at 0"
            )

    def _check_equilibrium(self) -> None:
        _check_choice("equilibrium_solver", self.equilibrium_solver, EQUILIBRIUM_SOLVERS)
        _check_choice("equilibrium_gradient", self.equilibrium_gradient, EQUILIBRIUM_GRADIENTS)
        if not 0 < self.equilibrium_damping <= 1:
            raise UserError(f"equilibrium_damping must be above 0 and at most 1, not {self.equilibrium_damping}")
        fixed = self.equilibrium_solver == "fixed_point" and self.equilibrium_tolerance == 0
        if fixed and self.equilibrium_gradient == "phantom" and self.equilibrium_damping != 1:
            raise UserError(
                "with equilibrium_tolerance 0 the phantom steps are the last steps; equilibrium_damping is 1"
            )
        if self.equilibrium_tolerance >= 1:
            raise UserError(f"equilibrium_tolerance must be below 1, not {self.equilibrium_tolerance}")
        for name in _NOT_WITH_EQUILIBRIUM if self.equilibrium_solver != "none" else ():
            if getattr(self, name) not in ("none", 0):
                raise UserError(
                    f"{name} {getattr(self, name)!r} and equilibrium_solver '{self.equilibrium_solver}' exclude each"
                    " other: a fixed point is of one function, the same at every step; leave one out"
                )

    @property
    def head_size(self) -> int:
        """Gives the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_seq_length(self) -> int:
        """Gives the length of the longest row, in tokens: all positions but those before `position_offset`."""
        return self.max_position_embeddings - self.position_offset

    @property
    def num_steps(self) -> int:
        """Counts the blocks executed one after another: layers times inner groups."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def extensions(self) -> list[str]:
        """Lists the fields that ask for what no published ALBERT, BERT or RoBERTa has."""
        return [field.name for field in _EXTENSIONS if getattr(self, field.name) != field.default]

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
            raise UserError(f"no configuration is called '{name}'{_nearest(name, NAMED)}; known: {', '.join(NAMED)}")
        return cls(**cast(dict[str, Any], NAMED[name]))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads our own fields, google-research's ALBERT or BERT configuration, or HuggingFace's (RoBERTa's, too).

        >>> AlbertConfig.from_dict({"model_type": "albert", "hidden_size": 96, "hidden_act": "gelu"}).hidden_act
        'gelu_erf'

        Raises:
            UserError: an unknown key, a key whose value asks for another architecture, or an impossible value.
        """
        if reason := NEARLY.get(values.get("model_type", "")):
            raise UserError(
                f"model_type '{values['model_type']}' has no exact form here: {reason}; the options nearest to it,"
                " for a model of your own, are in docs/depth.md, 'The modern block'"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        from_huggingface = "model_type" in values or "transformers_version" in values
        for key, value in values.items():
            if key in names:
                continue
            if key in MUST_EQUAL:
                if value not in MUST_EQUAL[key]:
                    raise UserError(f"{key} {value!r} is another architecture; supported: {MUST_EQUAL[key]}")
            elif key not in IGNORED_KEYS and not (from_huggingface and key.startswith("_")):
                raise UserError(f"unknown configuration key '{key}'{_nearest(key, names)}")
        known = {key: value for key, value in values.items() if key in names}
        model_type = values.get("model_type")
        if model_type in ROBERTA_TYPES:
            padding = values.get("pad_token_id")
            known = {"position_offset": (1 if padding is None else padding) + 1} | known
        says_albert = model_type == "albert" or known.keys() & set(_ONLY_ALBERT)
        if model_type in ("bert", *ROBERTA_TYPES) or not says_albert:
            known = {"sharing": "none", "embedding_size": known.get("hidden_size", cls.hidden_size)} | known
        elif "num_hidden_groups" not in known and values.keys() & {"directionality", "ln_type"}:
            known["factorization"] = "word"
        if model_type == "albert" and known.get("embedding_size", 128) == known.get("hidden_size"):
            known.setdefault("always_project", True)
        if from_huggingface and isinstance(known.get("hidden_act"), str):
            known["hidden_act"] = _HUGGINGFACE_ACTIVATIONS.get(known["hidden_act"], known["hidden_act"])
        return cls(**known)

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
        missing = [key for key in _SIZES if key not in values]
        if missing:
            raise UserError(f"'{path}' lacks {', '.join(missing)}")
        try:
            return cls.from_dict(values)
        except UserError as error:
            raise UserError(f"'{path}': {error}") from error

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
            raise UserError(f"unknown configuration key '{key}'{_nearest(key, dataclasses.asdict(self))}")
        return dataclasses.replace(self, **changes)


def read_config(name_or_file: str) -> AlbertConfig:
    """Reads a .json file, or finds the published configuration of that name.

    >>> read_config("albert_base_v2").hidden_size
    768
    """
    return AlbertConfig.from_json(name_or_file) if name_or_file.endswith(".json") else AlbertConfig.named(name_or_file)


_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_ONLY_ALBERT = ("embedding_size", "num_hidden_groups", "sharing", "depth_plan")
_FIELDS = dataclasses.fields(AlbertConfig)
_NAMES = [field.name for field in _FIELDS]
# What the first configurations were written with, what came later, and of that what no published model has.
_FIRST, _LATER = _NAMES[: _NAMES.index("position_offset")], _FIELDS[_NAMES.index("position_offset") :]
_EXTENSIONS = _FIELDS[_NAMES.index("depth_plan") :]
_HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_python": "gelu_erf",
    "swish": "silu",
}


def _check_type(field: dataclasses.Field, value: Any) -> None:
    if field.type in (str, bool):
        if not isinstance(value, field.type):
            raise UserError(f"{field.name} must be a {field.type.__name__}, not {value!r}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{field.name} must be a number, not {value!r}")
    # Counts of what there may be none of are 0 by default.
    least = min(cast(float, field.default), 1)
    if field.type is int and (not isinstance(value, int) or value < least):
        raise UserError(f"{field.name} must be a whole number of at least {least}, not {value}")
    if field.name.endswith("_prob") and not 0 <= value < 1:
        raise UserError(f"{field.name} must be a probability below 1, not {value}")
    if field.type is float and not (value >= 0 and math.isfinite(value)):
        raise UserError(f"{field.name} must be finite and not negative, not {value}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} '{value}' is none of {', '.join(choices)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
