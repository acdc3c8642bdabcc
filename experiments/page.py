"""Writes the page of a table: its numbers with their spread, and which differences they decide."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.columns import COLUMNS
from experiments.results import Result
from experiments.tables import Row, Scale, Table
from experiments.verdicts import CONFIDENCE, Verdict, verdicts
from tfrecords.base import files


def render(
    table: Table, scale: Scale, results: Sequence[Result], command: str, picture: str, csv: str, legend: str = ""
) -> str:
    """Writes the page as Markdown, without a heading.

    Args:
        table: whose page it is.
        scale: of the runs.
        results: of the runs that are done, in any order.
        command: that makes them.
        picture: the path of the picture as the page names it; shown if the table has one.
        csv: the path of the results likewise.
        legend: the path of a page that describes columns and scales; "": the text describes them itself.

    Returns:
        Paragraphs and tables, with an empty line between them.
    """
    by_row = {row.name: [one for one in results if one.row == row.name] for row in table.rows}
    done = [row for row in table.rows if by_row[row.name]]
    missing = [row.title for row in table.rows if not by_row[row.name]]
    parts = [
        table.setup,
        _numbers(table, done, by_row),
        *([f"Not run: {', '.join(missing)}."] if missing else []),
        *([f"![Held-out masked-LM loss by row and seed]({picture})"] if table.has_picture else []),
        *([_judgement(table, verdicts(results, table.comparisons))] if table.comparisons else []),
        *table.remarks.get(scale.name, []),
        "## How it was run",
        f"    {command}",
        _provenance(table, scale, results, csv),
        f"[How to read the tables]({legend})" if legend else f"{scale.description}\n\n{LEGEND}\n\n{RULE}",
    ]
    return "\n\n".join(parts) + "\n"


def insert(page: Path, name: str, text: str) -> bool:
    """Replaces the text between the markers of a table in a Markdown file; returns whether the file has them.

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


LEGEND = """- Loss: nats per predicted token on held-out rows, after the last update. Lower is better.
- ±: standard deviation over the seeds.
- Parameters include the heads.
- Training FLOPs: three forward passes of the encoder for each row. Steps of an equilibrium without gradient count \
once. Permutation models include the query stream and the memory.
- Minutes: time of a run's updates. Other programs ran at the same time.
- ms a step, ms an answer: medians of all rows of one table, timed in turn in one process. Do not compare them between \
tables. An answer is one row through an export (`serving.export --compute=auto`), of 128 tokens at scale `small`.
- Scores of tasks: the best evaluation on the dev file while the model is fine-tuned."""
RULE = """A difference of two means counts if it is larger than the column "needed", which is half of Welch's t \
interval of the two rows. The interval holds at 95 % for all comparisons of the table together (Bonferroni). If a row \
is the best of several, all of them count as comparisons. A smaller difference is "not decidable"."""


def _provenance(table: Table, scale: Scale, results: Sequence[Result], csv: str) -> str:
    seeds = {row.name: seeds_of(results, row.name) for row in table.rows if seeds_of(results, row.name)}
    common = sorted(set.intersection(*seeds.values())) if seeds else []
    titles = {row.name: row.title for row in table.rows}
    more = "".join(f" ({titles[name]}: {_listed(own)})" for name, own in seeds.items() if own != set(common))
    machines = " and ".join(sorted({result.machine for result in results}))
    if timed := sorted({result.timed_on for result in results if result.timed_on}):
        machines += f"; timed on {' and '.join(timed)}"
    changes = [
        f"{'fine-tuning ' * (part == 'finetuning')}`{name}={value}`"
        for part, values in table.at.get(scale.name, {}).items()
        for name, value in values.items()
    ]
    own = [f"- Changes to the scale: {', '.join(changes)}"] if changes else []
    said = f"Seed{'s' * (len(common) != 1)} {_listed(common) or 'by row'}{more}"
    return "\n".join([f"- Scale `{scale.name}`", *own, f"- {said}, on {machines}", f"- Every run: [{csv}]({csv})"])


def seeds_of(results: Sequence[Result], row: str) -> set[int]:
    """Returns the seeds that a row was run with."""
    return {result.seed for result in results if result.row == row}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _numbers(table: Table, rows: Sequence[Row], by_row: dict[str, list[Result]]) -> str:
    columns = [COLUMNS[name] for name in table.columns]
    published = [table.published_column] if table.published_column else []
    lines = [["row", *(column.head for column in columns), *published]]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        cells = [column.cell(by_row[row.name]) for column in columns]
        lines.append([row.title, *cells, *([row.published or "-"] if published else [])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _judgement(table: Table, found: Sequence[Verdict]) -> str:
    if not found:
        return "Nothing to compare yet."
    titles = {row.name: row.title for row in table.rows}
    cells = [comparison(verdict, titles) for verdict in found]
    head = ["compared", "column", "difference", "needed", "result", "published"]
    if not any(line[-1] for line in cells):
        head, cells = head[:-1], [line[:-1] for line in cells]
    lines = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)]
    pairs = sum(verdict.pairs for verdict in found)
    together = f"{len(found)} comparison{'s' * (len(found) > 1)}"
    chosen = f"; the best rows were chosen from {pairs}" if pairs > len(found) else ""
    return "\n".join([*lines, "", f"Confidence: {CONFIDENCE:.0%} for {together} together{chosen}."])


def comparison(verdict: Verdict, titles: dict[str, str]) -> list[str]:
    """Returns the cells that describe a verdict.

    Args:
        verdict: of two rows.
        titles: of the rows by their names.
    """
    one, column = verdict.comparison, verdict.column
    form = f"{{:{column.form}}}{column.unit}"
    ours, theirs = titles[one.row], titles[one.against] if isinstance(one.against, str) else form.format(one.against)
    needed = "one seed" if math.isnan(verdict.needed) else form.format(verdict.needed)
    difference = f"{verdict.difference:+{column.form}}{column.unit}"
    published = f"{one.published} ({one.source}): {verdict.published}" if one.published else ""
    return [f"{ours}, against {theirs}", column.head, difference, needed, verdict.word, published]
