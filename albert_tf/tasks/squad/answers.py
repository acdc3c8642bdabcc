"""The best answers to each question."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.models.heads import IMPOSSIBLE
from albert_tf.tasks.squad.data import SquadExample
from albert_tf.tasks.squad.windows import SpanRows, text_of
from tfrecords.base import files

N_BEST = 20
MAX_ANSWER_LENGTH = 30


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
    examples: Sequence[SquadExample],
    rows: SpanRows,
    outputs: Sequence[Mapping[str, Any]],
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[Answers]:
    """Returns each question's `n_best` different answers from all its windows, best first.

    A start counts only in the window that gives it the most context (write_predictions_v2 in squad_utils.py of
    google-research/albert).
    """
    answers = []
    spans = [list(_legal(rows, row, output["spans"], max_answer_length)) for row, output in enumerate(outputs)]
    of_rows = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows.example)) + 1)
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


def _null_odds(rows: SpanRows, windows: Sequence[int], outputs: Sequence[Mapping[str, Any]], best: float) -> float:
    pairs = [null_scores(outputs[row], rows.null_column[row]) for row in windows]
    score = float(np.mean(np.min([scores for scores, _ in pairs], axis=0), dtype=np.float64))
    return score - best if pairs[0][1] else score


def _legal(
    rows: SpanRows, row: int, spans: Mapping[str, np.ndarray], max_answer_length: int
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


def write_answers(
    folder: Path, examples: Sequence[SquadExample], answers: Sequence[Answers], threshold: float | None
) -> list[Path]:
    """Writes predictions.json, nbest_predictions.json and, with a `threshold`, null_odds.json."""
    ids = [example.id for example in examples]
    contents = {
        "predictions": {one: answer.text(threshold) for one, answer in zip(ids, answers)},
        "nbest_predictions": {one: _nbest(answer) for one, answer in zip(ids, answers)},
    }
    if threshold is not None:
        contents["null_odds"] = {one: answer.null_odds for one, answer in zip(ids, answers)}
    folder = files.make_output_dir(folder)
    for name, content in contents.items():
        files.write_json(folder / f"{name}.json", content)
    return [folder / f"{name}.json" for name in contents]


def _nbest(answer: Answers) -> list[dict[str, str | float]]:
    if not answer.candidates:
        return []
    scores = np.array([candidate.score for candidate in answer.candidates])
    odds = np.exp(scores - scores.max())
    return [
        {"text": candidate.text, "probability": float(share), "score": candidate.score}
        for candidate, share in zip(answer.candidates, odds / odds.sum())
    ]
