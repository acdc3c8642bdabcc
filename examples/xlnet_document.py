"""A document of any length, read window by window: a model with a memory hands on what it has seen.

    python -m serving.export --model=xlnet --output_dir=models/document --inputs=ids    # a model with a memory_length
    python -m serving.model_server --port=8500 --model_name=document --model_base_path=$PWD/models/document &
    python examples/xlnet_document.py --target=127.0.0.1:8500 --model=document --tokenizer=xlnet --text_file=book.txt

The signature `stateful` takes `memory` and `memory_lengths` beside ids, and gives those for the window that follows.
The server keeps nothing: windows of many documents may share a batch, and any replica may answer the next one.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from serving.client import Client
from tfrecords.tokenizers.loading import load_tokenizer

SIGNATURE = "stateful"
CLS_SEGMENT = 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="127.0.0.1:8500", help="HOST:PORT of the server's gRPC port")
    parser.add_argument("--model", default="document", help="an export of a model with a memory")
    parser.add_argument("--tokenizer", required=True, help="the vocabulary, or the folder that it is in")
    parser.add_argument("--text_file", type=Path, required=True)
    parser.add_argument("--window", type=int, default=128, help="tokens of a window")
    return parser.parse_args()


def windows(ids: Sequence[int], segments: Sequence[int], size: int) -> Iterator[dict[str, np.ndarray]]:
    """Cuts a row into what the signature takes of it."""
    for start in range(0, len(ids), size):
        row, of_row = (np.array([values[start : start + size]], np.int32) for values in (ids, segments))
        yield {"input_ids": row, "segment_ids": of_row, "lengths": np.array([row.shape[1]], np.int32)}


def read(client: Client, ids: Sequence[int], segments: Sequence[int], size: int) -> Iterator[dict[str, np.ndarray]]:
    """Gives the answers to the windows of one document, each knowing those before it."""
    _, *shape = client.metadata()[SIGNATURE].inputs["memory"].shape
    memory = {"memory": np.zeros([1, *shape], np.float32), "memory_lengths": np.zeros(1, np.int32)}
    for window in windows(ids, segments, size):
        answers = client.predict(window | memory, signature=SIGNATURE)
        memory = {name: answers.pop(name) for name in memory}
        yield answers


def main() -> None:
    arguments = parse_arguments()
    tokenizer = load_tokenizer(arguments.tokenizer)
    text = tokenizer.encode(arguments.text_file.read_text("utf-8"))
    ids = [*text, tokenizer.sep_id, tokenizer.cls_id]
    segments = [0] * (len(ids) - 1) + [CLS_SEGMENT]
    with Client(arguments.target, arguments.model) as client:
        for number, answers in enumerate(read(client, ids, segments, arguments.window)):
            seen = min((number + 1) * arguments.window, len(ids))
            shown = {name: np.round(values[0], 4).tolist() for name, values in answers.items() if values.size <= 16}
            print(f"{seen} tokens: {shown}")


if __name__ == "__main__":
    main()
