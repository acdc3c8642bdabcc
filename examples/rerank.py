"""Search in two steps: an embedder finds what may answer, a cross-encoder puts that in order.

    python -m serving.model_server --port=8500 --model_config_file=models.config &     # both models, exported by text
    python examples/rerank.py --target=127.0.0.1:8500 --embedder=embedder --reranker=stsb \
        --text_file=passages.txt --query="where does the river end"

The embedder reads every passage once, and may do so beforehand; the cross-encoder reads query and passage together,
which is better and dearer, so it sees the `--candidates` nearest alone. Any TensorFlow Serving will do.
"""

import argparse
from pathlib import Path

import numpy as np

from serving.client import Client, ServingError


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="127.0.0.1:8500", help="HOST:PORT of the server's gRPC port")
    parser.add_argument("--embedder", default="embedder", help="a model that gives `embedding`")
    parser.add_argument("--reranker", default="reranker", help="a regressor, or classifier of two classes, of pairs")
    parser.add_argument("--text_file", type=Path, required=True, help="passages, one a line")
    parser.add_argument("--query", required=True)
    parser.add_argument("--candidates", type=int, default=50, help="passages that the cross-encoder reads")
    parser.add_argument("--top", type=int, default=5, help="passages that are printed")
    return parser.parse_args()


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def main() -> None:
    arguments = parse_arguments()
    passages = [line for line in arguments.text_file.read_text("utf-8").splitlines() if line.strip()]
    with Client(arguments.target, arguments.embedder) as embedder:
        vectors = unit(embedder.embed([arguments.query, *passages]))
    cosines = vectors[1:] @ vectors[0]
    nearest = np.argsort(-cosines, kind="stable")[: arguments.candidates]
    with Client(arguments.target, arguments.reranker) as reranker:
        scores = reranker.rerank(arguments.query, [passages[number] for number in nearest])
    for place in np.argsort(-scores, kind="stable")[: arguments.top]:
        number = nearest[place]
        print(f"{scores[place]:.3f}  (cosine {cosines[number]:.3f})  {passages[number]}")


if __name__ == "__main__":
    try:
        main()
    except ServingError as error:
        raise SystemExit(f"error: {error}") from None
