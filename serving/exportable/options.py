import dataclasses
from typing import Any

from serving.inference import InferenceOptions
from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export; most are flags of ExportSettings.

    `tokenizer` is None if texts are not accepted. `task` is fine-tuning's "labels", "inputs" and "null_threshold".
    `calibration`, for int8, is typical input_ids int32 [rows, length] and lengths int32 [rows].
    """

    max_seq_length: int
    tokenizer: Tokenizer | None = None
    task: dict[str, Any] = dataclasses.field(default_factory=dict)
    inference: InferenceOptions = dataclasses.field(default_factory=InferenceOptions)
    calibration: tuple | None = None
    exit_rule: str = "confidence"
    top_k: int = 5
    doc_stride: int = 128
    max_query_length: int = 64
    num_choices: int = 4
    dimensions: int = 0
    check_numbers: bool = False
