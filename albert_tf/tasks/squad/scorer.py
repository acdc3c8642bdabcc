"""The scores of SQuAD's scripts evaluate-v1.1.py and evaluate-v2.0.py, to the last digit.

Scores are added one by one in file order, in double precision, since Python 3.12's `sum` rounds differently.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from albert_tf.tasks.squad.data import SquadExample

# Below all null odds, and finite, since JSON has no infinity.
ANSWER_NOTHING = -1e30

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Returns the text in lower case, without ASCII punctuation and English articles, white space squeezed."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(prediction: str, gold: str) -> int:
    """Returns 1 if both texts are equal after `normalize_answer`, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(gold))


def f1_v1(prediction: str, gold: str) -> float:
    """Returns the F1 of shared words, counted with repetitions."""
    predicted, expected = normalize_answer(prediction).split(), normalize_answer(gold).split()
    same = sum((Counter(predicted) & Counter(expected)).values())
    if not same:
        return 0
    precision, recall = same / len(predicted), same / len(expected)
    return 2 * precision * recall / (precision + recall)


def f1_v2(prediction: str, gold: str) -> float:
    """Returns `f1_v1`, but 1 if neither text has words."""
    predicted, expected = normalize_answer(prediction), normalize_answer(gold)
    if not predicted or not expected:
        return int(predicted == expected)
    return f1_v1(prediction, gold)


def evaluate_v1(examples: Sequence[SquadExample], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns exact_match and f1 in percent. A question without a prediction counts as wrong."""
    scores = []
    for example in examples:
        golds = [answer.text for answer in example.answers]
        prediction = predictions.get(example.id)
        found = prediction is not None and golds
        scores.append([_best(rule, prediction, golds) if found else 0 for rule in (exact, f1_v1)])
    return {
        name: 100.0 * _sum(score[column] for score in scores) / len(examples)
        for column, name in enumerate(("exact_match", "f1"))
    }


def evaluate_v2(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Returns exact, f1 and total: of all questions, of answerable (prefix HasAns_) and of unanswerable ones (NoAns_).

    `null_odds` adds best_exact, best_f1 and their thresholds. Questions without a prediction do not count; where null
    odds exceed `threshold` (officially 1.0), the prediction counts as "".
    """
    scored = [example for example in examples if example.id in predictions]
    if not scored:
        raise ValueError("no question has a prediction")
    raw = {name: _raw_scores(scored, predictions, rule) for name, rule in (("exact", exact), ("f1", f1_v2))}
    best = {}
    if null_odds is not None:
        for name, scores in raw.items():
            best[f"best_{name}"], found = best_threshold(examples, predictions, scores, null_odds)
            best[f"best_{name}_thresh"] = 0.0 if found is None else found
    odds = null_odds or {}
    final = {
        name: {
            one.id: float(not one.answers) if odds.get(one.id, 0.0) > threshold else scores[one.id] for one in scored
        }
        for name, scores in raw.items()
    }
    return _summary(scored, final) | best


def threshold_of_best_f1(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns a `threshold` with which `evaluate_v2` has its best F1; `ANSWER_NOTHING` if no prediction raises F1.

    The threshold lies between two null odds, so that rounding changes no decision.
    """
    found = best_threshold(examples, predictions, _raw_scores(examples, predictions, f1_v2), null_odds)[1]
    if found is None:
        return ANSWER_NOTHING
    return (found + min((odds for odds in null_odds.values() if odds > found), default=found + 1)) / 2


def best_threshold(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float | None]:
    """Returns the best mean score in percent, and the threshold of null odds that gives it.

    The threshold is None if answering nothing scores best.
    """
    has_answer = {example.id: bool(example.answers) for example in examples}
    current = best = sum(not has for has in has_answer.values())
    threshold = None
    for question_id in sorted(null_odds, key=null_odds.__getitem__):
        if question_id not in scores:
            continue
        if has_answer[question_id]:
            current += scores[question_id]
        elif predictions[question_id]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[question_id]
    return 100.0 * best / len(scores), threshold


def _raw_scores(
    examples: Iterable[SquadExample], predictions: Mapping[str, str], rule: Callable[[str, str], float]
) -> dict[str, float]:
    scores = {}
    for example in examples:
        golds = [answer.text for answer in example.answers if normalize_answer(answer.text)]
        scores[example.id] = _best(rule, predictions[example.id], golds or [""])
    return scores


def _summary(examples: Sequence[SquadExample], scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    summary = {}
    groups = {
        "": examples,
        "HasAns_": [one for one in examples if one.answers],
        "NoAns_": [one for one in examples if not one.answers],
    }
    for prefix, group in groups.items():
        if group:
            for name, values in scores.items():
                summary[prefix + name] = 100.0 * _sum(values[one.id] for one in group) / len(group)
            summary[f"{prefix}total"] = len(group)
    return summary


def _best(rule: Callable[[str, str], float], prediction: str, golds: Iterable[str]) -> float:
    return max(rule(prediction, gold) for gold in golds)


def _sum(values: Iterable[float]) -> float:
    total = 0
    for value in values:
        total += value
    return total
