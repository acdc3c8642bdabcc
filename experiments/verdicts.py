"""What the results of a table decide: differences that count, beside what is published."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from scipy import stats

from experiments.columns import COLUMNS, Column
from experiments.results import Result
from experiments.tables import Comparison

# How sure all comparisons of a table are together.
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Says what a comparison came to.

    Attributes:
        comparison: of which two rows, or of a row and a number: of lists, those that were chosen.
        pairs: of rows that could have been chosen.
        difference: of the means, in the unit of the comparison's column.
        needed: what the difference must exceed to count; NaN where a row has not two seeds, or neither has a spread.
    """

    comparison: Comparison
    difference: float
    needed: float
    pairs: int = 1

    @property
    def column(self) -> Column:
        """Gives what is compared."""
        return COLUMNS[self.comparison.by]

    @property
    def word(self) -> str:
        """Gives "better", "worse" or "not decidable"."""
        if not abs(self.difference) > self.needed:
            return "not decidable"
        return "better" if (self.difference > 0) == self.column.higher_is_better else "worse"

    @property
    def published(self) -> str:
        """Says whether the published direction is confirmed; "" where none is published."""
        if not self.comparison.published:
            return ""
        if self.word == "not decidable":
            return "not decidable at this scale"
        return "confirmed" if self.word == self.comparison.published else "not confirmed"


def verdicts(results: Sequence[Result], comparisons: Sequence[Comparison]) -> list[Verdict]:
    """Judges the comparisons whose rows have what is compared.

    A difference of two means counts where it is outside Welch's t interval of the two rows, of `CONFIDENCE` for all
    comparisons together (each at 1 - (1 - CONFIDENCE) / comparisons: Bonferroni, where a choice of the best of several
    rows counts as the comparisons of all of them). Welch's, since the spreads of rows differ up to nine times. That of
    a mean and a number counts where it is outside the interval of the mean.
    """
    judged = []
    for one in comparisons:
        pairs = math.prod(max(len(side), 1) for side in one.rows())
        chosen = dataclasses.replace(
            one, row=_best(results, one.row, one.by), against=_best(results, one.against, one.by)
        )
        ours, theirs = (_values(results, side, one.by) for side in (chosen.row, chosen.against))
        if ours and theirs:
            judged.append((chosen, ours, theirs, pairs))
    confidence = 1 - (1 - CONFIDENCE) / max(sum(pairs for *_, pairs in judged), 1)
    return [_judged(*sides, confidence) for sides in judged]


def _best(results: Sequence[Result], side: str | float | list[str], column: str) -> str | float:
    """Of several rows the one whose mean is best, of those with several seeds where there are such."""
    if not isinstance(side, list):
        return side
    found = {row: values for row in side if (values := _values(results, row, column))}
    judgeable = {row: values for row, values in found.items() if len(values) > 1}
    means = {row: statistics.fmean(values) for row, values in (judgeable or found).items()}
    pick = max if COLUMNS[column].higher_is_better else min
    return pick(means, key=means.__getitem__, default=side[0])


def _values(results: Sequence[Result], side: str | float, column: str) -> list[float]:
    """Of a row one a seed; a number is a mean without spread."""
    if not isinstance(side, str):
        return [side]
    found = [COLUMNS[column].value(result) for result in results if result.row == side]
    return [value for value in found if value is not None]


def _judged(
    comparison: Comparison, ours: Sequence[float], theirs: Sequence[float], pairs: int, confidence: float
) -> Verdict:
    sides = [ours] if not isinstance(comparison.against, str) else [ours, theirs]
    needed = math.nan
    errors = [statistics.variance(side) / len(side) for side in sides if len(side) > 1]
    if len(errors) == len(sides) and any(errors):
        squares = sum(error**2 / (len(side) - 1) for error, side in zip(errors, sides))
        freedom = sum(errors) ** 2 / squares
        needed = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(sum(errors))
    return Verdict(comparison, statistics.fmean(ours) - statistics.fmean(theirs), needed, pairs)
