"""From a model's scored spans to the best answers of each question."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.tasks.squad.data import SquadExample
from albert_tf.tasks.squad.windows import SpanRows, text_of

N_BEST = 20
MAX_ANSWER_LENGTH = 30
# Lower than any sum of log-probabilities, and finite: JSON knows no infinity.
NO_SPAN = -1e30


class Candidate(NamedTuple):
    """score: log-probability of the start plus that of the end, averaged in an ensemble."""

    text: str
    score: float


class Answers(NamedTuple):
    """Of one question. null_odds: higher where an answer is less likely."""

    candidates: list[Candidate]
    null_odds: float

    def text(self, threshold: float | None) -> str:
        """The best candidate's; "" where there is none, or where null_odds are above `threshold` (None: never)."""
        if not self.candidates or (threshold is not None and self.null_odds > threshold):
            return ""
        return self.candidates[0].text


def find_answers(
    examples: Sequence[SquadExample],
    rows: SpanRows,
    outputs: Sequence[Mapping[str, Any]],
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[Answers]:
    """The `n_best` different texts of each question, best first, over all its windows.

    A span counts where it lies in the passage and is no longer than `max_answer_length` tokens. The rows' start_mask
    has kept each to the window that shows its start best (squad_utils.py of google-research/albert,
    `write_predictions_v2`, passes over the others after the search, when they have used up places).

    Args:
        outputs: for each row `spans`, and `null_scores` of each model or what `null_scores` reads them from.
    """
    answers = []
    spans = _legal_spans(rows, outputs, max_answer_length)
    of_rows = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows.example)) + 1)
    for number, of_example in enumerate(of_rows):
        found = sorted((span for row in of_example for span in spans[row]), key=lambda span: -span[2])
        candidates = _different(examples[number].context, rows.offsets[number], found, n_best)
        best = candidates[0].score if candidates else NO_SPAN
        answers.append(Answers(candidates, _null_odds([outputs[row] for row in of_example], best)))
    return answers


def null_scores(output: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    """float [models], the score of "no answer" in one window; and whether it is to be held against a span's score.

    A joint head has a logit for it; otherwise it is the span at [CLS], as in BERT.
    """
    if "answerable_logits" in output:
        return np.atleast_1d(output["answerable_logits"]), False
    starts, ends = (np.asarray(output[f"{side}_log_probs"]) for side in ("start", "end"))
    return np.atleast_1d(starts[..., 0] + ends[..., 0]), True


def _null_odds(outputs: Sequence[Mapping[str, Any]], best: float) -> float:
    """Of each model the least null score of the windows; then the mean of the models."""
    pairs = [null_scores(output) for output in outputs]
    score = float(np.mean(np.min([scores for scores, _ in pairs], axis=0), dtype=np.float64))
    return score - best if pairs[0][1] else score


def _legal_spans(
    rows: SpanRows, outputs: Sequence[Mapping[str, Any]], max_answer_length: int
) -> list[list[tuple[int, int, float]]]:
    """For each row (first token of the passage, last token, score), in the model's order."""
    return [list(_legal(rows, row, output["spans"], max_answer_length)) for row, output in enumerate(outputs)]


def _legal(
    rows: SpanRows, row: int, spans: Mapping[str, np.ndarray], max_answer_length: int
) -> Iterator[tuple[int, int, float]]:
    shift = rows.first_token[row] - rows.first_column[row]
    first, last, score = spans["start_index"] + shift, spans["end_index"] + shift, spans["score"]
    begin, end = rows.first_token[row], rows.first_token[row] + rows.size[row]
    legal = (begin <= first) & (first <= last) & (last < end) & (last - first < max_answer_length)
    for index in np.flatnonzero(legal & (score > NO_SPAN / 2)):
        yield int(first[index]), int(last[index]), float(score[index])


def _different(
    context: str, offsets: np.ndarray, spans: Sequence[tuple[int, int, float]], n_best: int
) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for first, last, score in spans:
        text = text_of(context, offsets, first, last)
        if text and text not in found:
            found[text] = Candidate(text, score)
            if len(found) == n_best:
                break
    return list(found.values())
