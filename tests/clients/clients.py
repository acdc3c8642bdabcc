"""The clients of the table: their packages and versions, and what a user writes to point them at the servers."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = ROOT / "requirements" / "clients.txt"
PACKAGE = HERE / "package.json"


@dataclass(frozen=True)
class Client:
    """A client, and how it is pointed at the servers.

    Attributes:
        name: As the page has it.
        language: "Python", "JavaScript" or "command".
        package: As the registry has it; of a program of the machine, with the version that was tried.
        example: What a user writes; the gateway is at 127.0.0.1:8080, the model server at 8500 and 8501.
        own: Whether it runs where albert-tf runs.
    """

    name: str
    language: str
    package: str
    example: str
    own: bool = False


CLIENTS = (
    Client(
        "openai", "Python", "openai",
        """client = openai.OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")
client.embeddings.create(model="minilm", input=["a fine film"])"""
    ),
    Client(
        "langchain-openai", "Python", "langchain-openai",
        """OpenAIEmbeddings(
    base_url="http://127.0.0.1:8080/v1", api_key="none", model="minilm", check_embedding_ctx_length=False
).embed_documents(["a fine film"])"""
    ),
    Client(
        "llama-index", "Python", "llama-index-embeddings-openai",
        """embedder = OpenAIEmbedding(api_base="http://127.0.0.1:8080/v1", api_key="none", model_name="minilm")
embedder.get_text_embedding_batch(["a fine film"])"""
    ),
    Client(
        "chromadb", "Python", "chromadb",
        """OpenAIEmbeddingFunction(api_key="none", api_base="http://127.0.0.1:8080/v1", model_name="minilm")
HuggingFaceEmbeddingServer("http://127.0.0.1:8080/embed")"""
    ),
    Client(
        "qdrant-client", "Python", "qdrant-client",
        """vectors = openai_client.embeddings.create(model="minilm", input=texts, encoding_format="float").data
points = [PointStruct(id=one.index, vector=one.embedding) for one in vectors]
QdrantClient(":memory:").upsert("texts", points)"""
    ),
    Client(
        "cohere", "Python", "cohere",
        """client = cohere.ClientV2(base_url="http://127.0.0.1:8080", api_key="none")
client.rerank(model="ranker", query=query, documents=documents, top_n=3)"""
    ),
    Client(
        "huggingface_hub", "Python", "huggingface_hub",
        """client = InferenceClient()
client.feature_extraction("a fine film", model="http://127.0.0.1:8080/pipeline/feature-extraction")
client.text_classification("a fine film", model="http://127.0.0.1:8080/pipeline/text-classification")"""
    ),
    Client(
        "ovmsclient", "Python", "ovmsclient",
        """client = ovmsclient.make_grpc_client("127.0.0.1:8500")
client.predict({"text": ["a fine film"]}, "minilm", model_version=1)"""
    ),
    Client(
        "requests", "Python", "requests",
        """body = {"instances": ["a fine film"]}
requests.post("http://127.0.0.1:8501/v1/models/minilm:predict", json=body).json()["predictions"]"""
    ),
    Client(
        "tensorflow-serving-api", "Python", "tensorflow-serving-api",
        """stub = PredictionServiceStub(grpc.insecure_channel("127.0.0.1:8500"))
stub.Predict(request)""",
        own=True
    ),
    Client(
        "openai (JavaScript)", "JavaScript", "openai",
        """const client = new OpenAI({ baseURL: "http://127.0.0.1:8080/v1", apiKey: "none" });
await client.embeddings.create({ model: "minilm", input: ["a fine film"] });"""
    ),
    Client(
        "curl", "command", "curl 7.88",
        """curl --http2 http://127.0.0.1:8080/embed -d '{"inputs": "a fine film"}'"""
    )
)  # fmt: skip


def version_of(client):
    """Returns the version that is pinned, or that was tried."""
    if client.language == "JavaScript":
        return json.loads(PACKAGE.read_text())["dependencies"][client.package]
    if client.language != "Python":
        return client.package.split()[-1]
    file = ROOT / "requirements.txt" if client.own else REQUIREMENTS
    lines = file.read_text().splitlines()
    pins = dict(re.match(r"([\w-]+)(?:\[.*\])?==(\S+)", line).groups() for line in lines if "==" in line)
    return pins[client.package]
