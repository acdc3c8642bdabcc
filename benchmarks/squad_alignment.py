"""How fast SQuAD becomes rows, and how many of its answers come back from their tokens letter by letter.

python -m benchmarks.squad_alignment --input=dev-v1.1.json --tokenizer=30k-clean.model [--max_seq_length=384]
"""

import platform
import time

from absl import flags

from albert_tf.tasks.squad.data import SquadExample, read_squad
from albert_tf.tasks.squad.windows import SpanRows, make_rows, text_of, token_span
from benchmarks.machine import machine_line
from tfrecords.base.script import run_main
from tfrecords.tokenizers.loading import load_tokenizer

_INPUT = flags.DEFINE_string("input", None, "A SQuAD JSON file with answers, perhaps .gz.")
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "A .model, vocab .txt or folder.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 384, "Longest row in tokens.", 8)


def main() -> None:
    tokenizer = load_tokenizer(_TOKENIZER.value)
    # The first call of a tokenizer builds its tables.
    tokenizer.encode_with_offsets(["a"])
    examples, reading = _timed(lambda: read_squad(_INPUT.value))
    contexts = list({example.context: None for example in examples})
    _, aligning = _timed(lambda: tokenizer.encode_with_offsets(contexts))
    rows, framing = _timed(lambda: make_rows(examples, tokenizer, _MAX_SEQ_LENGTH.value, training=True))
    print(f"{machine_line()}, Python {platform.python_version()}, one thread")
    print(f"read        {len(examples):>8,} questions in {reading:.2f} s")
    print(f"align       {len(contexts) / aligning:>8,.0f} contexts a second")
    print(f"rows        {len(examples) / framing:>8,.0f} questions a second, {len(rows):,} windows")
    answers, covered, equal = _round_trip(examples, rows)
    print(f"answers     {answers:>8,}: {covered:,} inside the text of their tokens, {equal:,} equal to it")


def _timed(function):
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def _round_trip(examples: list[SquadExample], rows: SpanRows) -> tuple[int, int, int]:
    """How many answers there are, are part of the raw text of their tokens, and are all of it."""
    answers = covered = equal = 0
    for example, offsets in zip(examples, rows.offsets):
        for answer in example.answers:
            text = answer.text.strip()
            begin = answer.start + answer.text.index(text)
            span = token_span(offsets, begin, begin + len(text))
            found = text_of(example.context, offsets, *span) if span else ""
            answers, covered, equal = answers + 1, covered + (text in found), equal + (text == found)
    return answers, covered, equal


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "tokenizer"])
    run_main(main)
