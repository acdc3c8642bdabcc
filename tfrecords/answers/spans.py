"""The best answers to each question, from the spans of its windows, without invisible characters at their ends."""

import functools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

N_BEST = 20
MAX_ANSWER_LENGTH = 30
# The score of excluded items: positions without answers, illegal spans, padded choices.
IMPOSSIBLE = -1e30
# Of Unicode's category Cf: signs that are seen (its Prepended_Concatenation_Mark), and the letters of emoji flags.
_SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0xE0020, 0xE0080)}


@functools.cache
def edges() -> str:
    """Returns the characters to strip from an answer: white space, controls (Cc), formats (Cf).

    >>> "\\u200e\\ufeffAnna Bell\\u200b ".strip(edges())
    'Anna Bell'
    """
    characters = map(chr, set(range(0xE1000)) - _SEEN)
    return "".join(sorted(one for one in characters if one.isspace() or unicodedata.category(one) in ("Cc", "Cf")))


def edge_pattern() -> str:
    """Returns an RE2 pattern for one character of `edges()`."""
    return "[" + "".join(rf"\x{{{ord(one):x}}}" for one in edges()) + "]"


class Windows(Protocol):
    """Rows that are windows of contexts.

    Attributes:
        example: index of each row's question, ascending; this and the next four are int32 [rows].
        first_token: index of the window's first token in the context.
        first_column: that token's column in the row.
        size: number of context tokens in the window.
        null_column: column of [CLS].
        offsets: for each question int32 [context tokens, 2]: each token's characters, from begin to before end.
    """

    example: np.ndarray
    first_column: np.ndarray
    first_token: np.ndarray
    size: np.ndarray
    null_column: np.ndarray
    offsets: list[np.ndarray]


class Candidate(NamedTuple):
    """A possible answer; `score` is the log-probability of its start plus that of its end."""

    text: str
    score: float


class Answers(NamedTuple):
    """A question's candidates, best first; the higher `null_odds`, the likelier there is no answer."""

    candidates: list[Candidate]
    null_odds: float

    def text(self, threshold: float | None) -> str:
        if not self.candidates or (threshold is not None and self.null_odds > threshold):
            return ""
        return self.candidates[0].text


def find_answers(
    examples: Sequence[Any],
    rows: Windows,
    outputs: Sequence[Mapping[str, Any]],
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[Answers]:
    """Returns each question's `n_best` different answers from all its windows, best first; examples have a `context`.

    A start counts only in the window that gives it the most context (write_predictions_v2 in squad_utils.py of
    google-research/albert).
    """
    answers = []
    spans = [list(_legal(rows, row, output["spans"], max_answer_length)) for row, output in enumerate(outputs)]
    of_rows = np.split(np.arange(len(rows.example)), np.flatnonzero(np.diff(rows.example)) + 1)
    for number, of_example in enumerate(of_rows):
        ranked = sorted((span for row in of_example for span in spans[row]), key=lambda span: -span[2])
        candidates = _different(examples[number].context, rows.offsets[number], ranked, n_best)
        best = candidates[0].score if candidates else IMPOSSIBLE
        answers.append(Answers(candidates, _null_odds(rows, of_example, outputs, best)))
    return answers


def null_scores(output: Mapping[str, Any], null_column: int) -> tuple[np.ndarray, bool]:
    """Returns the score of "no answer" in a window, and whether to subtract the best span's score from it.

    The score is a joint head's answerability logit, or a plain head's log-probability of the span at [CLS].
    """
    if "answerable_logits" in output:
        return np.atleast_1d(output["answerable_logits"]), False
    starts, ends = (np.asarray(output[f"{side}_log_probs"]) for side in ("start", "end"))
    return np.atleast_1d(starts[..., null_column] + ends[..., null_column]), True


def _null_odds(rows: Windows, windows: Sequence[int], outputs: Sequence[Mapping[str, Any]], best: float) -> float:
    pairs = [null_scores(outputs[row], rows.null_column[row]) for row in windows]
    score = float(np.mean(np.min([scores for scores, _ in pairs], axis=0), dtype=np.float64))
    return score - best if pairs[0][1] else score


def _legal(
    rows: Windows, row: int, spans: Mapping[str, np.ndarray], max_answer_length: int
) -> Iterator[tuple[int, int, float]]:
    shift = rows.first_token[row] - rows.first_column[row]
    first, last, score = spans["start_index"] + shift, spans["end_index"] + shift, spans["score"]
    begin, end = rows.first_token[row], rows.first_token[row] + rows.size[row]
    legal = (begin <= first) & (first <= last) & (last < end) & (last - first < max_answer_length)
    for index in np.flatnonzero(legal & (score > IMPOSSIBLE / 2)):
        yield int(first[index]), int(last[index]), float(score[index])


def _different(
    context: str, offsets: np.ndarray, spans: Sequence[tuple[int, int, float]], n_best: int
) -> list[Candidate]:
    different: dict[str, Candidate] = {}
    for first, last, score in spans:
        text = text_of(context, offsets, first, last)
        if text and text not in different:
            different[text] = Candidate(text, score)
            if len(different) == n_best:
                break
    return list(different.values())


def text_of(context: str, offsets: np.ndarray, first: int, last: int) -> str:
    """Returns the text of tokens `first` to `last`, stripped of `edges()`."""
    return context[offsets[first, 0] : offsets[last, 1]].strip(edges())
