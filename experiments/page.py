"""The page of a table: numbers with their spread beside the published ones, and what they decide, in words."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.columns import COLUMNS, TASK_MEASURES
from experiments.results import Result
from experiments.tables import Row, Scale, Table
from experiments.verdicts import CONFIDENCE, Verdict, verdicts
from tfrecords.base import files


def render(table: Table, scale: Scale, results: Sequence[Result], command: str, picture: str, csv: str) -> str:
    """Writes the page as Markdown, without a heading.

    Args:
        table: whose page it is.
        scale: of the runs.
        results: of the runs that are done, in any order.
        command: that makes them.
        picture: the path of the picture as the page names it; shown if the table has one.
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
        _provenance(table, scale, results, csv),
        _numbers(table, done, by_row),
        _LEGEND.format(
            tasks=_OF_TASKS * any(COLUMNS[name].measure in TASK_MEASURES for name in table.columns),
            length=scale.inference_length,
        ),
        *([f"Not run: {', '.join(missing)}."] if missing else []),
        *([f"![held-out masked-LM loss by row and seed]({picture})"] if table.has_picture else []),
        *([_judgement(table, verdicts(results, table.comparisons))] if table.comparisons else []),
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


_OF_TASKS = (
    " A task's figure is that of a fine-tuning of the model after the last update, and of its evaluations on the dev "
    "file the best."
)
_LEGEND = (
    "Loss in nats a predicted token, held out, after the last update, as all that is measured; mean ± standard "
    "deviation over the seeds.{tasks} Parameters with the heads. Training FLOPs: three forward passes of the encoder "
    "for every row of tokens (an equilibrium's steps without gradient: one; of permutations with the stream of queries "
    "and the memory). Minutes: of the updates of a run, beside whatever else the machine did. ms a step, ms an answer: "
    "medians of all rows in turn in one process, not to be compared with other tables'; the answer is that of the "
    "export (`serving.export --compute=auto`) to one row of "
    "{length} tokens."
)


def _provenance(table: Table, scale: Scale, results: Sequence[Result], csv: str) -> str:
    seeds = {row.name: seeds_of(results, row.name) for row in table.rows if seeds_of(results, row.name)}
    common = sorted(set.intersection(*seeds.values())) if seeds else []
    titles = {row.name: row.title for row in table.rows}
    more = "".join(f" ({titles[name]}: {_listed(own)})" for name, own in seeds.items() if own != set(common))
    machines = " and ".join(sorted({result.machine for result in results}))
    if timed := sorted({result.timed_on for result in results if result.timed_on}):
        machines += f"; timed on {' and '.join(timed)}"
    changes = [
        f"{'in fine-tuning ' * (part == 'finetuning')}{name} {value}"
        for part, values in table.at.get(scale.name, {}).items()
        for name, value in values.items()
    ]
    own = f" This table changes of that: {', '.join(changes)}." if changes else ""
    runs = (
        f"Seed{'s' * (len(common) != 1)} {_listed(common) or 'by row'}{more}, on {machines}. Every run: [{csv}]({csv})."
    )
    return f"Scale `{scale.name}`: {scale.description}{own} {runs}"


def seeds_of(results: Sequence[Result], row: str) -> set[int]:
    """Gives the seeds that a row was run with."""
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
    titles = {row.name: row.title for row in table.rows}
    sentences = [f"- {sentence(verdict, titles)}" for verdict in found]
    pairs = sum(verdict.pairs for verdict in found)
    together = "this comparison" if len(found) == 1 else f"these {len(found)} comparisons together"
    chosen = f", of all {pairs} that the best rows were chosen from" if pairs > len(found) else ""
    rule = (
        "The rule: a difference of means counts where it is outside Welch's t interval of the two rows, of "
        f"{CONFIDENCE:.0%} for {together}{chosen}."
    )
    return "\n".join([*sentences, "", rule]) if found else "Nothing to compare yet."


def sentence(verdict: Verdict, titles: dict[str, str]) -> str:
    """Says a verdict in words.

    Args:
        verdict: of two rows.
        titles: of the rows by their names.
    """
    one, column = verdict.comparison, verdict.column
    form = f"{{:{column.form}}}{column.unit}"
    ours, theirs = titles[one.row], titles[one.against] if isinstance(one.against, str) else form.format(one.against)
    what = {
        "better": f"{ours} is better than {theirs}",
        "worse": f"{ours} is worse than {theirs}",
        "not decidable": f"Between {ours} and {theirs} it is not decidable",
    }[verdict.word]
    what = what[0].upper() + what[1:]
    is_single = math.isnan(verdict.needed)
    needed = "without spread" if is_single else f"needed: {form.format(verdict.needed)}"
    said = f"{what}: {column.head} {verdict.difference:+{column.form}}{column.unit} ({needed})."
    if not one.published:
        return said
    return f"{said} Published: {one.published} ({one.source}): {verdict.published}."
