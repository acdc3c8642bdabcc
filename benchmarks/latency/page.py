"""The report's page, plot and data, from the figures of benchmarks.latency.measure."""

from pathlib import Path

from benchmarks.latency.plot import latency_plot
from tfrecords.base import files

Figures = list[dict]

# Tokens of the request that the summary quotes, and of the longest row of the mixed batches; rows of these.
LENGTH, BATCH = 128, 32
PLAIN, FAST, INT8 = "plain fp32", "fast", "fast int8"
# The template's names of models.
_NAMES = {"bert": "bert_base_uncased", "albert": "albert_base_v2", "tiny": "albert_tiny"}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def write_page(figures: Figures, page: Path) -> None:
    """Writes `page`, and beside it in a folder of its name figures.json and latency.png."""
    folder = files.make_output_dir(page.with_suffix(""))
    files.write_json(folder / "figures.json", {"figures": figures})
    with files.replacing(folder / "latency.png") as temporary:
        temporary.write_bytes(latency_plot(figures))
    with files.replacing(page) as temporary:
        temporary.write_text(render(figures, folder.name), encoding="utf-8")


def render(figures: Figures, folder: str) -> str:
    """The page as Markdown; `folder` is where its plot is."""
    words = plain_words(figures)
    return "\n\n".join(
        [
            "# Is ALBERT faster than BERT when it answers?" if words else "# How long does a request take?",
            *([words] if words else []),
            "## What each model costs",
            _costs(figures),
            f"![latency against length]({folder}/latency.png)",
            "## One request, in process",
            "Median in milliseconds by length in tokens (- if there was no time for 20 requests). Batch of 1; Python "
            "calls the SavedModel.",
            _by_length(figures, lambda point: _number(point["in_process_ms"])),
            "## One request, over gRPC",
            "Milliseconds, median / p90; the same requests through `serving.client`'s stub to a server on the same "
            "machine, one client.",
            _by_length(figures, lambda point: f"{_number(point['grpc_ms'])} / {_number(point['grpc_p90_ms'])}"),
            *_over_rest(figures),
            "## What the server adds",
            "What gRPC and the server add to the median, in milliseconds. The two were measured one after the other, "
            "so a few per cent either way for a long request is noise.",
            _by_length(figures, _share),
            "## Batches of real sentences",
            f"{BATCH} paragraphs of Python's help texts a request, of their own lengths, at most {LENGTH} tokens; "
            "rows a second.",
            _mixed(figures),
            "## How it was measured",
            _provenance(figures),
            "",
        ]
    )


def plain_words(figures: Figures) -> str:
    """What the numbers say, from words.md; nothing where one of the models it speaks of was not measured."""
    entries = {
        (entry["model"], entry["variant"]): entry | {"ms": entry["lengths"][str(LENGTH)]["in_process_ms"]}
        for entry in figures
    }
    if any((model, variant) not in entries for model in _NAMES.values() for variant in (PLAIN, FAST, INT8)):
        return ""
    bert, albert, _ = (entries[model, PLAIN] for model in _NAMES.values())
    fast_bert, fast, tiny = (entries[model, FAST] for model in _NAMES.values())
    int8 = entries[_NAMES["albert"], INT8]
    rows = [entry["mixed"]["in_process_rows_per_second"] for entry in (bert, albert, fast, int8)]
    ratio = {
        "parameters": bert["parameters"] / albert["parameters"],
        "plain": bert["ms"] / albert["ms"],
        "fast": albert["ms"] / fast["ms"],
        "fast_to_bert": bert["ms"] / fast["ms"],
        "rows": rows[2] / rows[1],
        "rows_to_bert": rows[2] / rows[0],
        "rows_int8": rows[3] / rows[1],
        "tiny": bert["ms"] / tiny["ms"],
    }
    template = Path(__file__).with_name("words.md").read_text(encoding="utf-8")
    found = {"bert": bert, "albert": albert, "fast": fast, "int8": int8, "fast_bert": fast_bert, "tiny": tiny}
    return template.format(ratio=ratio, **found).rstrip()


def _provenance(figures: Figures) -> str:
    machine = figures[0]["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if name != "albert-tf")
    loads = [entry["environment"]["load_average_1min_at_start"] for entry in figures]
    return "\n".join(
        [
            f"- {machine['cpu']}, {machine['usable_cores']} cores, {machine['memory_gib']:.0f} GiB; Python "
            f"{machine['python']}, {packages}; load of the machine when a model's turn began: {min(loads):.1f} to "
            f"{max(loads):.1f}",
            f"- {machine['created'][:10]}{_commit(machine)}",
            "- `python -m benchmarks.latency`; random weights, which cost what trained ones cost",
            "- [How to read the tables](reading_the_tables.md)",
        ]
    )


def _commit(machine: dict) -> str:
    """Nothing for figures from before the commit was noted."""
    return f", commit `{machine['commit']}`" if machine.get("commit") else ""


def _costs(figures: Figures) -> str:
    head = ["model", "parameters", f"GFLOP at {LENGTH}", "export", "file, MB", "memory, MB", "load and first call, s"]
    rows = [
        [
            entry["model"],
            f"{entry['parameters'] / 1e6:.1f} M",
            f"{entry['gflop']:.1f}",
            entry["variant"],
            f"{entry['megabytes']:.0f}",
            f"{entry['resident_mb']:.0f}",
            f"{entry['load_and_first_call_seconds']:.1f}",
        ]
        for entry in figures
    ]
    note = (
        "Parameters include the pooler. GFLOP count matrix products; a multiplication and an addition are two. "
        "Memory: growth of a fresh process by loading and a first call, without TensorFlow itself. Exports: plain "
        "is float32 with `--padding=computed`; fast has `--compute=auto` (bfloat16 if the CPU has it) and "
        "`--padding=skipped`; fast int8 has `--compute=int8` and `--padding=skipped`. All three are classifiers, which "
        "compute their last step for [CLS] alone."
    )
    return f"{table(head, rows)}\n\n{note}"


def _by_length(figures: Figures, cell) -> str:
    # Exports that were measured at other times may have had other lengths.
    lengths = [length for length in figures[0]["lengths"] if all(length in entry["lengths"] for entry in figures)]
    rows = [
        [entry["model"], entry["variant"], *(cell(entry["lengths"][length]) for length in lengths)] for entry in figures
    ]
    return table(["model", "export", *lengths], rows)


def _share(point: dict) -> str:
    times = point["grpc_ms"], point["in_process_ms"]
    return "-" if None in times else f"{times[0] - times[1]:+.1f}"


def _over_rest(figures: Figures) -> list[str]:
    """Nothing for figures from before REST was measured."""
    if not any("rest_ms" in point for entry in figures for point in entry["lengths"].values()):
        return []
    return [
        "## One request, over REST",
        "Milliseconds, median / p90; the same requests as JSON on one kept-alive connection to the same server.",
        _by_length(figures, lambda point: f"{_number(point.get('rest_ms'))} / {_number(point.get('rest_p90_ms'))}"),
    ]


def _mixed(figures: Figures) -> str:
    rows = [
        [
            entry["model"],
            entry["variant"],
            f"{entry['mixed']['in_process_rows_per_second']:.1f}",
            f"{entry['mixed']['grpc_rows_per_second']:.1f}",
        ]
        for entry in figures
    ]
    return table(["model", "export", "in process", "over gRPC"], rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
