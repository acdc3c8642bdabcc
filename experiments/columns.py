"""The columns of a page: what a figure is called, where it comes from, how it is written, and which way is better."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from experiments.results import Result


class Column(NamedTuple):
    """Describes a column of a page.

    Attributes:
        head: its name on the page.
        name: of a result's figure.
        form: how a number is written.
        unit: behind the number, with the space before it.
        factor: of the figure, to give it in the unit of the page.
        has_spread: whether the runs of a row differ in it; else the first run's is written.
        higher_is_better: of two rows that are compared by it.
        measure: of `measures.MEASURES`, what it comes from; "": the run itself.
    """

    head: str
    name: str
    form: str
    unit: str = ""
    factor: float = 1.0
    has_spread: bool = True
    higher_is_better: bool = False
    measure: str = ""

    def value(self, result: Result) -> float | None:
        """Gives the number of a result; None where it was not measured."""
        number = result.named.get(self.name)
        return None if number is None else self.factor * number

    def cell(self, results: Sequence[Result]) -> str:
        """Writes the mean and the spread over the results; "-" where nothing was measured."""
        values = [number for result in results if (number := self.value(result)) is not None]
        if not values:
            return "-"
        values = values if self.has_spread else values[:1]
        deviation = f" ± {statistics.stdev(values):{self.form}}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):{self.form}}{deviation}{self.unit}"


def _fixed(head: str, name: str, form: str, unit: str = "", factor: float = 1.0) -> Column:
    return Column(head, name, form, unit, factor, has_spread=False)


def _share(head: str, name: str, measure: str = "") -> Column:
    return Column(head, name, ".1f", " %", 100, higher_is_better=True, measure=measure)


def _exits(number: str) -> dict[str, Column]:
    head = f"patience {number}" if number != "all" else "all steps"
    score, steps = f"exit_score_{number}", f"exit_steps_{number}"
    return {
        score: _share(f"SST-2, {head}", score, "early_exit"),
        steps: Column(f"steps, {head}", steps, ".1f", measure="early_exit"),
    }


# The tasks that runs are fine-tuned on, and the folders of their files as GLUE has them.
TASKS = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B"}
COLUMNS = {
    "parameters": _fixed("parameters", "parameters", ".2f", " M", 1e-6),
    "loss": Column("held-out loss", "masked_lm_loss", ".3f"),
    "accuracy": _share("accuracy", "masked_lm_accuracy"),
    "pair_accuracy": _share("pair accuracy", "pair_accuracy"),
    "training_flops": _fixed("training FLOPs", "training_flops", ".2g"),
    "minutes": Column("minutes", "training_seconds", ".1f", factor=1 / 60),
    "step_ms": _fixed("ms a step", "seconds_per_step", ".0f", factor=1000),
    "token_mflop": _fixed("MFLOP a token", "inference_flops_per_token", ".1f", factor=1e-6),
    "answer_ms": _fixed("ms an answer", "inference_ms", ".2f"),
    "nsp_accuracy": _share("NSP accuracy", "nsp_accuracy", "pair_tasks"),
    "sop_accuracy": _share("SOP accuracy", "sop_accuracy", "pair_tasks"),
    "common_loss": Column("loss on common examples", "common_loss", ".3f", measure="common_examples"),
    "l2_mean": Column("L2, mean of the steps", "l2_mean", ".2f", measure="distances"),
    "l2_last": Column("L2, last step", "l2_last", ".2f", measure="distances"),
    "degrees_mean": Column("degrees, mean of the steps", "degrees_mean", ".1f", measure="distances"),
    "degrees_last": Column("degrees, last step", "degrees_last", ".1f", measure="distances"),
    **{name: _share(head, name, name) for name, head in TASKS.items()},
    **{name: column for number in ("all", "1", "2", "3", "6") for name, column in _exits(number).items()},
    "common_accuracy": _share("accuracy on common examples", "common_accuracy", "common_examples"),
}

# Of a table that names none.
USUAL = (
    "parameters", "loss", "accuracy", "pair_accuracy", "training_flops", "minutes", "step_ms", "token_mflop",
    "answer_ms",
)  # fmt: skip
