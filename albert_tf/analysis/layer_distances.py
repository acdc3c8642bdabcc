"""How far each step moves what passes through it: the paper's Figure 1, for any checkpoint and text.

python -m albert_tf.analysis.layer_distances --models=a.keras,b --tokenizer=spm.model --input=text.txt --output_dir=out
"""

import csv
import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir, replacing
from tfrecords.base.plotting import fonts_for, legend_beside
from tfrecords.base.script import run_main
from tfrecords.base.settings import define_flags, read_flags, setting
from tfrecords.corpus import read_documents
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import read_tokenizer


@dataclasses.dataclass(frozen=True)
class LayerDistancesSettings:
    models: str = setting(help="checkpoints to compare, by commas, in any format that convert_checkpoint reads")
    tokenizer: str = setting(help="SentencePiece model, vocab.txt, or a folder that holds either")
    input: str = setting(help="globs of text files, by commas")
    output_dir: str = setting(help="where distances.csv and distances.png go")
    documents: int = setting(32, help="documents to read")
    max_seq_length: int = setting(128, help="tokens a document is cut to")
    lower_case: bool | None = setting(
        None, help="whether the tokenizer lower-cases; left out: as the files beside it or its pieces say"
    )


class Distance(NamedTuple):
    """Of one step's input and output, averaged over tokens: L2 norm of the difference, cosine, angle in degrees."""

    step: int
    l2: float
    cosine: float
    degrees: float


def layer_distances(encoder: AlbertEncoder, features: dict) -> list[Distance]:
    """Distances of each block's input and output at tokens that are no padding.

    features: as AlbertEncoder.call, with input_mask.
    """
    states = encoder(features, output_hidden_states=True)["hidden_states"]
    tokens = np.asarray(features["input_mask"]).astype(bool)
    vectors = [np.asarray(state, "float64")[tokens] for state in states]
    distances = []
    for step, (before, after) in enumerate(itertools.pairwise(vectors), start=1):
        norms = np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1)
        cosine = np.clip(np.sum(before * after, axis=-1) / norms, -1, 1)
        l2 = np.linalg.norm(after - before, axis=-1)
        distances.append(Distance(step, l2.mean(), cosine.mean(), np.degrees(np.arccos(cosine)).mean()))
    return distances


def rows_of_text(patterns: str, tokenizer: Tokenizer, count: int, length: int) -> dict[str, np.ndarray]:
    """The first `count` documents, cut to [CLS] ... [SEP] of at most `length` tokens, padded to one shape.

    Raises:
        UserError: no text.
    """
    rows = []
    for sentences in read_documents(patterns):
        ids = tokenizer.encode(" ".join(sentences))[: length - 2]
        rows.append([tokenizer.cls_id, *ids, tokenizer.sep_id])
        if len(rows) == count:
            break
    if not rows:
        raise UserError(f"no text in '{patterns}'")
    width = max(len(row) for row in rows)
    ids = np.array([row + [tokenizer.pad_id] * (width - len(row)) for row in rows], "int32")
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], "int32")
    return {"input_ids": ids, "input_mask": mask}


def write_csv(path, curves: dict[str, Sequence[Distance]]) -> None:
    """One line a model and step: model, step, l2, cosine, degrees."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", *Distance._fields])
        for name, distances in curves.items():
            for distance in distances:
                writer.writerow([name, distance.step, *(f"{value:.6f}" for value in distance[1:])])


def write_plot(path, curves: dict[str, Sequence[Distance]]) -> None:
    """L2 distance and angle over the steps, side by side, as a PNG."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    with fonts_for(curves):
        figure = Figure(figsize=(10, 4), layout="constrained")
        colours = colormaps["tab20" if len(curves) > 10 else "tab10"].colors
        for axes, field, label in zip(figure.subplots(1, 2), ("l2", "degrees"), ("L2 distance", "angle in degrees")):
            for (name, distances), colour in zip(curves.items(), itertools.cycle(colours)):
                values = [getattr(d, field) for d in distances]
                axes.plot([d.step for d in distances], values, marker="o", label=name, color=colour)
            axes.set(xlabel="step", ylabel=f"{label} of its input and output", ylim=(0, None))
        figure.suptitle("How far each step moves what passes through it")
        legend_beside(figure, *axes.get_legend_handles_labels())
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)


def main() -> None:
    from albert_tf import loading
    from albert_tf.checkpoints.variables import encoder_of

    settings = read_flags(LayerDistancesSettings)
    if settings.documents < 1 or settings.max_seq_length < 3:
        raise UserError("--documents must be at least 1 and --max_seq_length at least 3")
    output_dir = make_output_dir(settings.output_dir)
    tokenizer = read_tokenizer(settings.tokenizer, settings.lower_case)
    features = rows_of_text(settings.input, tokenizer, settings.documents, settings.max_seq_length)
    curves = {}
    for path in settings.models.split(","):
        encoder = encoder_of(loading.load(path, settings.tokenizer, settings.lower_case).model)
        _check_length(path, encoder, features)
        curves[path] = layer_distances(encoder, features)
    write_csv(output_dir / "distances.csv", curves)
    write_plot(output_dir / "distances.png", curves)
    for path, distances in curves.items():
        for d in distances:
            print(f"{path}  step {d.step:2}  L2 {d.l2:8.4f}  cosine {d.cosine:7.4f}  angle {d.degrees:6.2f} degrees")
    print(f"wrote {output_dir / 'distances.csv'} and {output_dir / 'distances.png'}")


def _check_length(path, encoder, features):
    length, limit = features["input_ids"].shape[1], encoder.config.max_position_embeddings
    if length > limit:
        raise UserError(f"--max_seq_length {length} is over max_position_embeddings {limit} of '{path}'")


def run() -> None:
    define_flags(LayerDistancesSettings)
    run_main(main)


if __name__ == "__main__":
    run()
