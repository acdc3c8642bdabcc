"""What a model is exported for."""

import dataclasses
from typing import Any

from serving.inference import InferenceOptions
from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What a model is exported for.

    Attributes:
        max_seq_length: The length of the longest row, in tokens.
        tokenizer: The one of an export that takes strings; None: it takes token ids.
        task: What fine-tuning wrote of the task ("labels", "inputs", "null_threshold"), or {}.
        inference: How the encoder computes.
        calibration: For int8, input_ids int32 [rows, length] and lengths int32 [rows] like those to come.
        exit_rule: When rows leave early, of models that can (see `ExitRule`).
        top_k: How many pieces are proposed for a mask, and answers to a question.
        doc_stride: The distance of the windows that a long context is read in, in tokens.
        max_query_length: How many tokens of a question are read.
        num_choices: How many candidates a question has.
        dimensions: How many numbers of an embedding are returned; 0: all.
        check_numbers: Whether a request fails in whose answer a number is NaN or infinite.
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
