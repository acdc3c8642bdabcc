"""The report's page, plot and data, from the figures of benchmarks.latency.measure."""

from pathlib import Path

from benchmarks.latency.plot import latency_plot
from tfrecords.base import files

Figures = list[dict]

# Tokens of the request that the summary quotes, and of the longest row of the mixed batches; rows of these.
LENGTH, BATCH = 128, 32
PLAIN, FAST, INT8 = "plain fp32", "fast", "fast int8"
# How each model is exported.
EXPORTS = {
    PLAIN: {"compute": "float32"},
    FAST: {"compute": "auto"},
    INT8: {"compute": "int8"},
}
# The template's names of models.
_NAMES = {"bert": "bert_base_uncased", "albert": "albert_base_v2", "tiny": "albert_tiny"}
_TABLE_LENGTHS = ("32", "128", "512")


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
    """Returns the page as Markdown; `folder` is where its plot is."""
    words = plain_words(figures)
    return "\n\n".join([
        "# Is ALBERT faster than BERT when it answers?" if words else "# How long does a request take?",
        *([words] if words else []),
        "## Figures",
        _table(figures),
        f"File and memory (growth of a fresh process by loading and a first call, without TensorFlow itself) in MB; "
        f"load: seconds until the first answer. Then the median in milliseconds of one request by its length in "
        f"tokens, called by Python in process, and over gRPC from one client on the same machine (- if there was no "
        f"time for 20 requests). Rows a second: {BATCH} paragraphs of Python's help texts a request, of their own "
        f"lengths, at most {LENGTH} tokens. Plain is float32; fast has `--compute=auto` (bfloat16 "
        "if the CPU has it); fast int8 has `--compute=int8`. "
        "All are classifiers, which compute their last step for [CLS] alone.",
        f"![latency against length]({folder}/latency.png)",
        "## How it was measured",
        _provenance(figures, folder),
        "",
    ])  # fmt: skip


def plain_words(figures: Figures) -> str:
    """Returns what the numbers say, from words.md; "" where one of the models it speaks of was not measured."""
    entries = {
        (entry["model"], entry["variant"]): entry | {"ms": entry["lengths"][str(LENGTH)]["in_process_ms"]}
        for entry in figures
    }
    if any((model, variant) not in entries for model in _NAMES.values() for variant in EXPORTS):
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
    entries = {"bert": bert, "albert": albert, "fast": fast, "int8": int8, "fast_bert": fast_bert, "tiny": tiny}
    return template.format(ratio=ratio, **entries).rstrip()


def _provenance(figures: Figures, folder: str) -> str:
    machine = figures[0]["environment"]
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in ("tensorflow", "keras", "grpcio"))
    loads = [entry["environment"]["load_average_1min_at_start"] for entry in figures]
    return (
        f"{machine['cpu']}, {machine['usable_cores']} cores, {machine['memory_gib']:.0f} GiB; Python "
        f"{machine['python']}, {packages}; load of the machine when a model's turn began: {min(loads):.1f} to "
        f"{max(loads):.1f}. {machine['created'][:10]}, commit `{machine['commit']}`, by "
        "`python -m benchmarks.latency`, with random weights, which cost what trained ones cost. "
        f"[figures.json]({folder}/figures.json) has the other lengths and the 90th percentiles."
    )


def _table(figures: Figures) -> str:
    lengths = [length for length in _TABLE_LENGTHS if length in figures[0]["lengths"]]
    head = ["model", "export", "file", "memory", "load", *lengths, f"gRPC {LENGTH}", "rows/s"]
    lines = [head, ["---"] * len(head)]
    for entry in figures:
        times = [entry["lengths"][length]["in_process_ms"] for length in lengths]
        times.append(entry["lengths"][str(LENGTH)]["grpc_ms"])
        lines.append([
            entry["model"],
            entry["variant"],
            f"{entry['megabytes']:.0f}",
            f"{entry['resident_mb']:.0f}",
            f"{entry['load_and_first_call_seconds']:.1f}",
            *("-" if time is None else f"{time:.1f}" for time in times),
            f"{entry['mixed']['in_process_rows_per_second']:.1f}",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
