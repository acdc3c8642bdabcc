"""The page of a table: numbers with their spread beside the published ones, and what they decide, in words."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.results import CONFIDENCE, Result, Spread, Verdict, verdicts
from experiments.tables import Row, Scale, Table
from tfrecords.base import files


def render(table: Table, scale: Scale, results: Sequence[Result], command: str, picture: str, csv: str) -> str:
    """Writes the page as Markdown, without a heading.

    Args:
        table: whose page it is.
        scale: of the runs.
        results: of the runs that are done, in any order.
        command: that makes them.
        picture: the path of the picture as the page names it.
        csv: the path of the results likewise.

    Returns:
        Paragraphs, a table, a list of sentences, with an empty line between them.
    """
    by_row = {row.name: [one for one in results if one.row == row.name] for row in table.rows}
    done = [row for row in table.rows if by_row[row.name]]
    missing = [row.title for row in table.rows if not by_row[row.name]]
    parts = [
        table.question,
        f"    {command}",
        _provenance(scale, results, csv),
        _numbers(table, done, by_row),
        _LEGEND.format(length=scale.inference_length),
        *([f"Not run: {', '.join(missing)}."] if missing else []),
        f"![held-out masked-LM loss by row and seed]({picture})",
        _judgement(table, verdicts(results, table.comparisons)),
        *table.remarks.get(scale.name, []),
    ]
    return "\n\n".join(parts) + "\n"


def insert(page: Path, name: str, text: str) -> bool:
    """Puts the text between the markers of a table in a Markdown file; returns whether the file has them.

    The markers are `<!-- experiments.run NAME: begin -->` and `... end -->`.
    """
    begin, end = (f"<!-- experiments.run {name}: {word} -->" for word in ("begin", "end"))
    before = page.read_text(encoding="utf-8")
    after, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{text}{end}", before, flags=re.DOTALL
    )
    if count and after != before:
        with files.replacing(page) as temporary:
            temporary.write_text(after, encoding="utf-8")
    return bool(count)


_LEGEND = (
    "Loss in nats a predicted token, held out, after the last update; mean ± standard deviation over the seeds. "
    "Parameters with the heads. Training FLOPs: three forward passes of the encoder for every row of tokens (an "
    "equilibrium's steps without gradient: one). Minutes: "
    "of the updates of a run, beside whatever else the machine did. ms a step, ms an answer: medians of all rows in "
    "turn in one process; the answer is that of the export (`serving.export --compute=auto`) to one row of {length} "
    "tokens."
)


def _provenance(scale: Scale, results: Sequence[Result], csv: str) -> str:
    seeds = sorted({result.seed for result in results})
    machines = " and ".join(sorted({result.machine for result in results}))
    return (
        f"Scale `{scale.name}`: {scale.description} Seeds {_listed(seeds)}, on {machines}. Every run: [{csv}]({csv})."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _numbers(table: Table, rows: Sequence[Row], by_row: dict[str, list[Result]]) -> str:
    head = ["row", "parameters", "held-out loss", "accuracy", "pair accuracy", "training FLOPs", "minutes", "ms a step"]
    head += ["MFLOP a token", "ms an answer"] + ([table.published_column] if table.published_column else [])
    lines = [head, ["---"] * len(head)]
    for row in rows:
        one, of = by_row[row.name][0], _spreads(by_row[row.name])
        cells = [
            row.title,
            f"{one.parameters / 1e6:.2f} M",
            of(lambda r: r.masked_lm_loss, 3),
            of(lambda r: 100 * r.masked_lm_accuracy, 1, " %"),
            of(lambda r: None if r.pair_accuracy is None else 100 * r.pair_accuracy, 1, " %"),
            f"{one.training_flops:.2g}",
            of(lambda r: r.training_seconds / 60, 1),
            _cell(one.seconds_per_step, 1000, 0),
            f"{one.inference_flops_per_token / 1e6:.1f}",
            _cell(one.inference_ms, 1, 2),
        ]
        lines.append(cells + ([row.published or "-"] if table.published_column else []))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spreads(results: Sequence[Result]) -> Callable[..., str]:
    """A function that writes a figure's mean and spread over the results."""

    def write(value: Callable[[Result], float | None], digits: int, unit: str = "") -> str:
        values = [number for result in results if (number := value(result)) is not None]
        if not values:
            return "-"
        spread = Spread.of(values)
        deviation = "" if math.isnan(spread.deviation) else f" ± {spread.deviation:.{digits}f}"
        return f"{spread.mean:.{digits}f}{deviation}{unit}"

    return write


def _cell(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def _judgement(table: Table, found: Sequence[Verdict]) -> str:
    titles = {row.name: row.title for row in table.rows}
    sentences = [f"- {sentence(verdict, titles)}" for verdict in found]
    rule = (
        "The rule: a difference of mean losses counts where it is outside Student's t interval of the two rows, of "
        f"{CONFIDENCE:.0%} for these {len(found)} comparisons together."
    )
    return "\n".join([*sentences, "", rule]) if found else "Nothing to compare yet."


def sentence(verdict: Verdict, titles: dict[str, str]) -> str:
    """Says a verdict in words.

    Args:
        verdict: of two rows.
        titles: of the rows by their names.
    """
    one = verdict.comparison
    what = {
        "better": f"{titles[one.row]} is better than {titles[one.against]}",
        "worse": f"{titles[one.row]} is worse than {titles[one.against]}",
        "not decidable": f"Between {titles[one.row]} and {titles[one.against]} it is not decidable",
    }[verdict.word]
    what = what[0].upper() + what[1:]
    needed = "a single seed has no spread" if math.isnan(verdict.needed) else f"needed: {verdict.needed:.3f}"
    said = f"{what}: loss {verdict.difference:+.3f} ({needed})."
    if not one.published:
        return said
    return f"{said} Published: {one.published} ({one.source}): {verdict.published}."
