"""Search by a vector database: Qdrant in a folder, without a server; needs `pip install qdrant-client`.

    python examples/vector_database.py --model=sentence-transformers/all-MiniLM-L6-v2 --text_file=passages.txt \
        --database=database --query="where does the river end"

The first call encodes the passages; later ones, without --text_file, only ask. With a Qdrant server the same code runs
on QdrantClient(url="http://...").
"""

import argparse
from pathlib import Path

from qdrant_client import QdrantClient, models

import albert_tf
from albert_tf.loaded import Loaded

COLLECTION, PART = "passages", 1024


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="embedder: a folder, or its name on the hub")
    parser.add_argument("--text_file", type=Path, help="passages to add, one a line")
    parser.add_argument("--database", required=True, help="folder of the database")
    parser.add_argument("--query")
    parser.add_argument("--top", type=int, default=5, help="passages that are printed")
    return parser.parse_args()


def fill(client: QdrantClient, loaded: Loaded, texts: list[str]) -> None:
    """Writes texts with their vectors into a new collection."""
    parameters = models.VectorParams(size=loaded.embedder.dimensions, distance=models.Distance.COSINE)
    client.create_collection(COLLECTION, vectors_config=parameters)
    for start in range(0, len(texts), PART):
        part = texts[start : start + PART]
        points = [
            models.PointStruct(id=start + place, vector=vector, payload={"text": text})
            for place, (text, vector) in enumerate(zip(part, loaded.encode_document(part).tolist()))
        ]
        client.upsert(COLLECTION, points)


def main() -> None:
    arguments = parse_arguments()
    loaded = albert_tf.load(arguments.model)
    client = QdrantClient(path=arguments.database)
    if arguments.text_file:
        fill(client, loaded, [line for line in arguments.text_file.read_text("utf-8").splitlines() if line.strip()])
    if arguments.query:
        vector = loaded.encode_query(arguments.query).tolist()
        for point in client.query_points(COLLECTION, query=vector, limit=arguments.top).points:
            print(f"{point.score:.2f}  {point.payload['text']}")
    client.close()


if __name__ == "__main__":
    main()
