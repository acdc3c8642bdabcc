"""The settings of an export: the flags of its command."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from albert_tf.choices import ALLOW_PICKLE_HELP, DEPTH_HELP, EXIT_RULES, OTHER_TOKENIZER_HELP
from serving.manifest import LITERT, SAVED_MODEL
from tfrecords.base.errors import UserError, nearest, refuse
from tfrecords.base.files import folder_path
from tfrecords.base.settings import CheckedSettings, read_numbers, setting

# What matrix products are computed in.
COMPUTE = ("float32", "bfloat16", "int8")
CALIBRATION_ROWS = 64


@dataclasses.dataclass(frozen=True)
class ExportSettings(CheckedSettings):
    """The model to export, its inputs, and how it computes."""

    groups: ClassVar[dict[str, str]] = {
        "Model": "inputs tokenizer max_seq_length version depth",
        "Speed": "engine compute merge_low_rank other_cpu exit_rule",
        "Answers": "top_k doc_stride num_choices dimensions",
        "Output": "warm_up_lengths check",
    }

    model: str = setting(
        help="folder that training wrote, a .keras file in it, a published checkpoint, or a model's name on the hub"
    )
    output_dir: str = setting(help="base path of the servable; the version becomes a numbered folder in it")
    inputs: str = setting(
        "ids", help="ids: token ids and lengths; text: strings, tokenized in the graph", choices=("ids", "text")
    )
    version: int = setting(0, help="version number; 0 means the next free one", at_least=0)
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)
    max_seq_length: int = setting(
        0,
        help="longest row in tokens; 0: that of fine-tuning, or all the positions that the model has",
        at_least=8,
        also={0: "for that of fine-tuning"},
    )
    tokenizer: str = setting("", help="vocabulary to use instead of the one in the model's folder")
    other_tokenizer: bool = setting(False, help=OTHER_TOKENIZER_HELP)
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)
    lower_case: bool | None = setting(
        None, help="whether a published vocabulary lower-cases; left out: as the files next to it or its pieces say"
    )
    keep_accents: bool | None = setting(
        None, help="whether a published vocabulary keeps accents; left out: as the files next to it say, or else not"
    )
    compute: str = setting(
        "float32",
        help="arithmetic; int8: any x86 CPU; auto: bfloat16 where this CPU has it",
        choices=(*COMPUTE, "auto"),
    )
    engine: str = setting(
        "tensorflow",
        help="tensorflow: a SavedModel for any TensorFlow Serving server; litert: model.tflite, for short or single "
        "texts and small machines, without TensorFlow",
        choices=("tensorflow", "litert"),
    )
    merge_low_rank: bool = setting(
        False,
        help="store each layer's weights with its low-rank part added: faster, and a larger file; for models that "
        "compress wrote with --lora_rank",
    )
    other_cpu: bool = setting(
        False, help="write bfloat16 for another CPU, if this one does not support it; the result is not tested"
    )
    calibration_text: str = setting(
        "",
        help="text file for int8, one text a line, similar to those that will be sent; empty: the rows that training "
        "held out, or random ids",
    )
    exit_rule: str = setting(
        "confidence",
        help="rule by which rows exit early, at a threshold that the request sends; most models without exit heads "
        "support only movement",
        choices=EXIT_RULES,
    )
    top_k: int = setting(
        5, help="number of pieces returned for a mask, and of answers returned for a question", at_least=1
    )
    doc_stride: int = setting(
        128, help="tokens between the starts of the windows that a long context is split into", at_least=1
    )
    max_query_length: int = setting(64, help="largest number of tokens of a question; the rest is cut", at_least=1)
    num_choices: int = setting(4, help="number of candidates of a multiple-choice question", at_least=1)
    dimensions: int = setting(
        0, help="return only this many numbers of an embedding, from the first on; 0: all", at_least=0
    )
    warm_up_lengths: str = setting(
        "16,64,128", help="lengths of the warm-up requests, comma-separated, in tokens; empty: none"
    )
    warm_up_signatures: str = setting(
        "serving_default", help="signatures that the warm-up calls, comma-separated; each takes memory of its own"
    )
    check: bool = setting(False, help="load the result in a fresh process and compare it with the Keras model")

    def __post_init__(self):
        super().__post_init__()
        is_lite, given = self.engine == "litert", self.given(_OF_SAVED_MODELS)
        lengths = read_numbers("warm_up_lengths", self.warm_up_lengths)
        refuse({
            f"--output_dir={self.output_dir}: a folder with a number as its name is a version of an export; give its "
            "parent folder":
                Path(self.output_dir).name.isdecimal()
                or any((Path(self.output_dir) / name).is_file() for name in (SAVED_MODEL, LITERT)),
            f"--engine=litert computes in float32 or int8, not in {self.compute}; choose one of them":
                is_lite and self.compute not in ("float32", "int8"),
            f"{given} is for --engine=tensorflow; leave it out": is_lite and given,
            f"--other_cpu is for --compute=bfloat16; {self.compute} is written on any CPU":
                self.other_cpu and self.compute != "bfloat16",
            "--check runs what --other_cpu says that this CPU need not run; leave one of them out":
                self.check and self.other_cpu,
            f"--warm_up_lengths={self.warm_up_lengths} must be lengths of at least 8 tokens":
                any(length < 8 for length in lengths),
        })  # fmt: skip


_OF_SAVED_MODELS = (
    "other_cpu", "calibration_text", "exit_rule", "warm_up_lengths", "warm_up_signatures",
)  # fmt: skip

# Those that `albert_tf.load` has answered.
_OF_LOADING = (
    "model", "output_dir", "depth", "tokenizer", "other_tokenizer", "allow_pickle", "lower_case", "keep_accents",
)  # fmt: skip


def settings_of(
    folder: str | os.PathLike, source: str, has_tokenizer: bool, options: Mapping[str, Any]
) -> ExportSettings:
    """Returns the export settings of a model in memory.

    Raises UserError if an option is unknown, is about loading, or has a wrong type.
    """
    fields = {field.name: field for field in dataclasses.fields(ExportSettings) if field.name not in _OF_LOADING}
    for name, value in options.items():
        refuse({
            f"'{name}' is of albert_tf.load, and the model is loaded already; give it there":
                name in _OF_LOADING,
            f"export has no option '{name}'{nearest(name, fields)}; known: {', '.join(fields)}":
                name not in fields,
        })  # fmt: skip
        if type(value) is not (kind := type(fields[name].default)):
            raise UserError(f"{name}={value!r} must be of type {kind.__name__}")
    values = {"inputs": "text" if has_tokenizer else "ids"} | dict(options)
    return ExportSettings(source or "a model in memory", str(folder_path(folder)), **values)


def read_calibration(path: str) -> list[str]:
    """Returns the first lines of a text to calibrate with; raises UserError if it has none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read --calibration_text={path}: {error}") from error
    lines = [line for line in lines if line][:CALIBRATION_ROWS]
    if not lines:
        raise UserError(f"--calibration_text={path} holds no text")
    return lines
