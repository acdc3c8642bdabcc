"""The columns of a page: what a figure is called, where it comes from, how it is written, and which way is better."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.results import Result, Spread


class Column(NamedTuple):
    """Describes a column of a page.

    Attributes:
        head: its name on the page.
        value: of a result, in the unit of the page; None where it was not measured.
        form: how a number is written.
        unit: behind the number, with the space before it.
        has_spread: whether the runs of a row differ in it; else the first run's is written.
        higher_is_better: of two rows that are compared by it.
        measure: of `measures.MEASURES`, what it comes from; "": the run itself.
    """

    head: str
    value: Callable[[Result], float | None]
    form: str
    unit: str = ""
    has_spread: bool = True
    higher_is_better: bool = False
    measure: str = ""

    def cell(self, results: Sequence[Result]) -> str:
        """Writes the mean and the spread over the results; "-" where nothing was measured."""
        values = [number for result in results if (number := self.value(result)) is not None]
        if not values:
            return "-"
        spread = Spread.of(values if self.has_spread else values[:1])
        deviation = "" if math.isnan(spread.deviation) else f" ± {spread.deviation:{self.form}}"
        return f"{spread.mean:{self.form}}{deviation}{self.unit}"


def _of(name: str, factor: float = 1.0) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        number = result.named.get(name)
        return None if number is None else factor * number

    return value


def _fixed(head: str, name: str, form: str, unit: str = "", factor: float = 1.0) -> Column:
    return Column(head, _of(name, factor), form, unit, has_spread=False)


def _share(head: str, name: str, measure: str = "") -> Column:
    return Column(head, _of(name, 100), ".1f", " %", higher_is_better=True, measure=measure)


def _exits(number: str) -> dict[str, Column]:
    head = f"patience {number}" if number != "all" else "all steps"
    return {
        f"exit_score_{number}": _share(f"SST-2, {head}", f"exit_score_{number}", "early_exit"),
        f"exit_steps_{number}": Column(f"steps, {head}", _of(f"exit_steps_{number}"), ".1f", measure="early_exit"),
    }


_TASKS = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B"}
# Those of `measures` that fine-tune.
TASK_MEASURES = frozenset({*_TASKS, "early_exit"})
COLUMNS = {
    "parameters": _fixed("parameters", "parameters", ".2f", " M", 1e-6),
    "loss": Column("held-out loss", _of("masked_lm_loss"), ".3f"),
    "accuracy": _share("accuracy", "masked_lm_accuracy"),
    "pair_accuracy": _share("pair accuracy", "pair_accuracy"),
    "training_flops": _fixed("training FLOPs", "training_flops", ".2g"),
    "minutes": Column("minutes", _of("training_seconds", 1 / 60), ".1f"),
    "step_ms": _fixed("ms a step", "seconds_per_step", ".0f", factor=1000),
    "token_mflop": _fixed("MFLOP a token", "inference_flops_per_token", ".1f", factor=1e-6),
    "answer_ms": _fixed("ms an answer", "inference_ms", ".2f"),
    "nsp_accuracy": _share("NSP accuracy", "nsp_accuracy", "pair_tasks"),
    "sop_accuracy": _share("SOP accuracy", "sop_accuracy", "pair_tasks"),
    "common_loss": Column("loss on common examples", _of("common_loss"), ".3f", measure="common_examples"),
    "l2_mean": Column("L2, mean of the steps", _of("l2_mean"), ".2f", measure="distances"),
    "l2_last": Column("L2, last step", _of("l2_last"), ".2f", measure="distances"),
    "degrees_mean": Column("degrees, mean of the steps", _of("degrees_mean"), ".1f", measure="distances"),
    "degrees_last": Column("degrees, last step", _of("degrees_last"), ".1f", measure="distances"),
    **{name: _share(head, name, name) for name, head in _TASKS.items()},
    **{name: column for number in ("all", "1", "2", "3", "6") for name, column in _exits(number).items()},
    "common_accuracy": _share("accuracy on common examples", "common_accuracy", "common_examples"),
}

# Of a table that names none.
USUAL = (
    "parameters", "loss", "accuracy", "pair_accuracy", "training_flops", "minutes", "step_ms", "token_mflop",
    "answer_ms",
)  # fmt: skip
