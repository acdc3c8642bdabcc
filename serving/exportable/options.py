"""The options of an export."""

import dataclasses
from typing import Any

from serving.inference import InferenceOptions
from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export.

    Attributes:
        max_seq_length: Tokens of the longest row.
        tokenizer: For an export that takes strings; None: token ids.
        task: The task's settings from fine-tuning ("labels", "inputs", "null_threshold"), or {}.
        inference: How the encoder computes.
        calibration: For int8, typical input_ids int32 [rows, length] and lengths int32 [rows].
        exit_rule: When rows leave early (see `ExitRule`).
        top_k: Number of tokens proposed for a mask, and of answers to a question.
        doc_stride: Distance of the windows of a long context, in tokens.
        max_query_length: Tokens read of a question.
        num_choices: Candidates of a question.
        dimensions: Numbers returned of an embedding; 0: all.
        check_numbers: Whether an answer with NaN or infinity makes the request fail.
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
