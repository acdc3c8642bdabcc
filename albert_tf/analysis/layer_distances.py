"""Measures how far each layer moves its input, as Figure 1 of the ALBERT paper does.

python -m albert_tf.analysis.layer_distances --models=a.keras,b --input=text.txt --output_dir=out
python -m albert_tf.analysis.layer_distances --models=albert_base --input=text.txt --depth=24 --output_dir=deep
"""

import csv
import dataclasses
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf.choices import DEPTH_HELP
from albert_tf.loading.hub import check_model
from albert_tf.trainer_settings import PublishedModel
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir, replacing
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import setting
from tfrecords.corpus import read_documents
from tfrecords.tokenizers.folders.folder_files import check_tokenizer

if TYPE_CHECKING:
    from albert_tf.layers.encoder import AlbertEncoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerDistancesSettings(PublishedModel):
    """The command's flags."""

    models: str = setting(help="checkpoints to compare, by commas, in any format that convert_checkpoint reads")
    input: str = setting(help="globs of text files, by commas")
    output_dir: str = setting(help="folder for distances.csv and distances.png")
    documents: int = setting(32, help="documents to read", at_least=1)
    max_seq_length: int = setting(128, help="longest document in tokens; longer ones are cut", at_least=5)
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)
    tokenizer: str = setting("", help="SentencePiece model, vocab.txt, or a folder; left out: each model's own")


def read_texts(patterns: str, documents: int) -> list[str]:
    """Reads the first `documents` documents of `patterns`; raises UserError if there are none."""
    texts = [" ".join(sentences) for sentences in itertools.islice(read_documents(patterns), documents)]
    if not texts:
        raise UserError(f"no text in '{patterns}'")
    return texts


class Distance(NamedTuple):
    """Mean L2 distance, cosine and angle in degrees between a step's input and output."""

    step: int
    l2: float
    cosine: float
    degrees: float


def layer_distances(encoder: "AlbertEncoder", features: dict) -> list[Distance]:
    """Returns how far each step moves its input; padding is ignored."""
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


def write_csv(path: str | os.PathLike, curves: dict[str, Sequence[Distance]]) -> None:
    """Writes a CSV file of each model's distances."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", *Distance._fields])
        for name, steps in curves.items():
            writer.writerows([name, number, *(f"{value:.6f}" for value in values)] for number, *values in steps)


def write_plot(path: str | os.PathLike, curves: dict[str, Sequence[Distance]]) -> None:
    """Plots L2 distance and angle over the steps as a PNG."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    from tfrecords.base.plotting import fonts_for, legend_beside

    with fonts_for(curves):
        figure = Figure(figsize=(10, 4), layout="constrained")
        colours = colormaps["tab20" if len(curves) > 10 else "tab10"].colors  # type: ignore[attr-defined]
        for axes, field, label in zip(figure.subplots(1, 2), ("l2", "degrees"), ("L2 distance", "angle in degrees")):
            for (name, distances), colour in zip(curves.items(), itertools.cycle(colours)):
                values = [getattr(d, field) for d in distances]
                axes.plot([d.step for d in distances], values, marker="o", label=name, color=colour)
            axes.set(xlabel="step", ylabel=f"{label} of its input and output", ylim=(0, None))
        figure.suptitle("How far each step moves what passes through it")
        legend_beside(figure, *axes.get_legend_handles_labels())
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)


def measure(settings: LayerDistancesSettings, models: Sequence[str], texts: Sequence[str], output_dir: Path) -> None:
    """Measures every model on the same texts; writes distances.csv and distances.png."""
    from albert_tf.checkpoints.variables import encoder_of
    from albert_tf.loading.load import load

    curves = {}
    for path in models:
        loaded = load(path, settings.tokenizer, depth=settings.depth)
        features = loaded.preprocessor(settings.max_seq_length)(texts)
        curves[path] = layer_distances(encoder_of(loaded.model), features)
    write_csv(output_dir / "distances.csv", curves)
    write_plot(output_dir / "distances.png", curves)
    for path, distances in curves.items():
        for d in distances:
            print(f"{path}  step {d.step:2}  L2 {d.l2:8.4f}  cosine {d.cosine:7.4f}  angle {d.degrees:6.2f} degrees")
    print(f"wrote {output_dir / 'distances.csv'} and {output_dir / 'distances.png'}")


def main(settings: LayerDistancesSettings) -> None:
    """Measures every model on the same texts."""
    models = settings.models.split(",")
    for path in models:
        check_model(path, settings.allow_pickle)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    texts = read_texts(settings.input, settings.documents)
    output_dir = make_output_dir(settings.output_dir)
    start_tensorflow()
    measure(settings, models, texts, output_dir)


def run() -> None:
    """Runs the command."""
    run_main(main, LayerDistancesSettings)


if __name__ == "__main__":
    run()
