"""Shows what a pre-trained model learned: words of held-out text that it fills in, and the course of its loss.

python -m scripts.learned --target=127.0.0.1:8500 --data=quickstart/data --run=quickstart/run --output_dir=quickstart

One word of each held-out row is masked, and a server answers for the export by text of the model. Prints the first
rows; writes all of them to filled_words.json, and the loss to loss.png.
"""

import argparse
import csv
import random
from pathlib import Path

import numpy as np

from serving.client import Client
from tfrecords.base.files import replacing, write_json
from tfrecords.manifest import find_records
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import load_tokenizer

ROWS = 200
SHOWN = 8
# Words before and after the masked one that are printed.
CONTEXT = 5
BATCH = 32
SHORTEST_WORD = 4
MASK = "[MASK]"


def masked_words(rows: list[np.ndarray], tokenizer: Tokenizer, seed: int) -> list[tuple[str, str]]:
    """Masks a word of each row that has one of a single piece.

    Args:
        rows: Ids of held-out text, without special tokens.
        tokenizer: That of the ids.
        seed: Of the words that are chosen.

    Returns:
        Each text with the mask, and the word that stood there.
    """
    generator = random.Random(seed)
    found = []
    for ids in rows:
        starts = np.append(tokenizer.word_starts[ids], True)
        # Whole words of one piece: a mask stands for one.
        places = [n for n in range(1, len(ids) - 1) if starts[n] and starts[n + 1] and _is_word(tokenizer, ids[n])]
        if places:
            place = generator.choice(places)
            before, after = tokenizer.decode(ids[:place].tolist()), tokenizer.decode(ids[place + 1 :].tolist())
            found.append((f"{before} {MASK} {after}", tokenizer.decode([int(ids[place])])))
    return found


def _is_word(tokenizer: Tokenizer, token_id: int) -> bool:
    text = tokenizer.decode([int(token_id)])
    return len(text) >= SHORTEST_WORD and text.isalpha()


def held_out_rows(data: str, count: int) -> list[np.ndarray]:
    """Returns the ids of first segments of held-out rows, as they were before words were masked."""
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    from tfrecords.reader import read_examples

    paths, rows = [str(path) for path in find_records(data, "eval")], []
    for batch in read_examples(paths, 64, False, 0).as_numpy_iterator():
        for row, ids in enumerate(batch["input_ids"]):
            ids = ids.copy()
            slots = batch["masked_lm_weights"][row] > 0
            ids[batch["masked_lm_positions"][row][slots]] = batch["masked_lm_ids"][row][slots]
            first = (batch["segment_ids"][row] == 0) & (batch["input_mask"][row] > 0)
            rows.append(ids[first][1:-1])
        if len(rows) >= count:
            break
    return rows[:count]


def fill(target: str, model: str, masked: list[tuple[str, str]]) -> list[dict]:
    """Returns what the model proposes for each mask, the likeliest first."""
    answers = []
    with Client(target, model, signature="fill_mask") as client:
        for start in range(0, len(masked), BATCH):
            part = masked[start : start + BATCH]
            pieces = client.predict_text([text for text, _ in part])["pieces"]
            for (text, truth), proposed in zip(part, pieces):
                words = [piece.decode() if isinstance(piece, bytes) else piece for piece in np.ravel(proposed)]
                answers.append({"text": text, "truth": truth, "proposed": [word.lstrip("▁ ") for word in words]})
    return answers


def table(answers: list[dict]) -> str:
    """Returns the first answers as lines, and how many words were right."""
    if not answers:
        return f"\nNo held-out row has a word of {SHORTEST_WORD} letters or more that is one piece, to mask it"
    lines = ["", "Words of held-out text that the model filled in", ""]
    for answer in answers[:SHOWN]:
        before, after = (part.split() for part in answer["text"].split(MASK))
        context = " ".join([*before[-CONTEXT:], "____", *after[:CONTEXT]])
        mark = "right" if answer["proposed"][0] == answer["truth"] else ""
        lines.append(f"  {context:68.68}  {answer['truth']:>14.14}  {', '.join(answer['proposed'][:3]):36.36} {mark}")
    lines.insert(2, f"  {'text':68}  {'the word':>14}  {'what the model proposes'}")
    right = sum(answer["proposed"][0] == answer["truth"] for answer in answers)
    among = sum(answer["truth"] in answer["proposed"] for answer in answers)
    lines.append(f"  {right} of {len(answers)} right at once, {among} among its first {len(answers[0]['proposed'])}")
    return "\n".join(lines)


def draw_loss(history: Path, picture: Path) -> None:
    """Draws the losses of training and of held-out text against steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with open(history, newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for column, label in (("loss", "training"), ("val_loss", "held-out")):
        points = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
        if points:
            axes.plot(*zip(*points), marker="o" if label == "held-out" else "", markersize=3, label=label)
    axes.set(xlabel="step", ylabel="loss (nats)", title="Loss of pre-training")
    axes.legend()
    with replacing(picture) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.learned", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", required=True, help="HOST:PORT of the server")
    parser.add_argument("--model", default="text", help="name of the export by text")
    parser.add_argument("--data", required=True, help="folder of the records and their tokenizer")
    parser.add_argument("--run", type=Path, required=True, help="folder of the training run")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for filled_words.json and loss.png")
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(arguments.data)
    answers = fill(arguments.target, arguments.model, masked_words(held_out_rows(arguments.data, ROWS), tokenizer, 1))
    write_json(arguments.output_dir / "filled_words.json", answers)
    draw_loss(arguments.run / "history.csv", arguments.output_dir / "loss.png")


if __name__ == "__main__":
    main()
