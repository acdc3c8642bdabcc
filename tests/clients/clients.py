"""The clients of the table: their packages and versions, and what a user writes to point them at the servers."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = ROOT / "requirements" / "clients.txt"
# Installed without what it asks for: PyTorch, of which the calls below use nothing.
ALONE = HERE / "requirements-alone.txt"
PACKAGE = HERE / "package.json"


@dataclass(frozen=True)
class Client:
    """A client, and how it is pointed at the servers.

    Attributes:
        name: As the page has it.
        language: "Python", "JavaScript", "Java" or "command".
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
client.embeddings.create(model="minilm", input=["a fine film"])""",
    ),
    Client(
        "langchain-openai", "Python", "langchain-openai",
        """OpenAIEmbeddings(
    base_url="http://127.0.0.1:8080/v1", api_key="none", model="minilm", check_embedding_ctx_length=False
).embed_documents(["a fine film"])""",
    ),
    Client(
        "llama-index", "Python", "llama-index-embeddings-openai",
        """embedder = OpenAIEmbedding(api_base="http://127.0.0.1:8080/v1", api_key="none", model_name="minilm")
embedder.get_text_embedding_batch(["a fine film"])""",
    ),
    Client(
        "haystack", "Python", "haystack-ai",
        """key = Secret.from_token("none")
OpenAITextEmbedder(api_key=key, api_base_url="http://127.0.0.1:8080/v1", model="minilm").run("a fine film")""",
    ),
    Client(
        "haystack, Hugging Face API", "Python", "huggingface-api-haystack",
        """server = {"url": "http://127.0.0.1:8080/embed"}
HuggingFaceAPITextEmbedder("text_embeddings_inference", server).run("a fine film")
HuggingFaceTEIRanker(url="http://127.0.0.1:8080").run("capital of France", documents)""",
    ),
    Client(
        "litellm", "Python", "litellm",
        """litellm.embedding("openai/minilm", ["a fine film"], api_base="http://127.0.0.1:8080/v1", api_key="none")
litellm.rerank("cohere/ranker", query, documents, api_base="http://127.0.0.1:8080/v2/rerank", api_key="none")""",
    ),
    Client(
        "chromadb", "Python", "chromadb",
        """OpenAIEmbeddingFunction(api_key="none", api_base="http://127.0.0.1:8080/v1", model_name="minilm")
HuggingFaceEmbeddingServer("http://127.0.0.1:8080/embed")""",
    ),
    Client(
        "txtai", "Python", "txtai",
        """server = {"api_base": "http://127.0.0.1:8080/v1", "api_key": "none"}
Embeddings(path="openai/minilm", method="litellm", vectors=server).index(["a fine film"])""",
    ),
    Client(
        "semantic-kernel", "Python", "semantic-kernel",
        """client = openai.AsyncOpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")
OpenAITextEmbedding(ai_model_id="minilm", async_client=client)""",
    ),
    Client(
        "cohere", "Python", "cohere",
        """client = cohere.ClientV2(base_url="http://127.0.0.1:8080", api_key="none")
client.rerank(model="ranker", query=query, documents=documents, top_n=3)""",
    ),
    Client(
        "huggingface_hub", "Python", "huggingface_hub",
        """client = InferenceClient()
client.feature_extraction("a fine film", model="http://127.0.0.1:8080/pipeline/feature-extraction")
client.text_classification("a fine film", model="http://127.0.0.1:8080/pipeline/text-classification")""",
    ),
    Client(
        "tritonclient", "Python", "tritonclient",
        """client = tritonclient.http.InferenceServerClient("127.0.0.1:8080")  # grpc: --grpc_port of the gateway
text = tritonclient.http.InferInput("text", [1], "BYTES")
text.set_data_from_numpy(np.array([b"a fine film"], object))""",
    ),
    Client(
        "ovmsclient", "Python", "ovmsclient",
        """client = ovmsclient.make_grpc_client("127.0.0.1:8500")
client.predict({"text": ["a fine film"]}, "minilm", model_version=1)""",
    ),
    Client(
        "locust", "Python", "locust",
        """class User(locust.FastHttpUser):  # locust --host=http://127.0.0.1:8080
    @locust.task
    def embed(self):
        self.client.post("/embed", json={"inputs": "a fine film"})""",
    ),
    Client(
        "requests", "Python", "requests",
        """body = {"instances": ["a fine film"]}
requests.post("http://127.0.0.1:8501/v1/models/minilm:predict", json=body).json()["predictions"]""",
    ),
    Client(
        "tensorflow-serving-api", "Python", "tensorflow-serving-api",
        """stub = PredictionServiceStub(grpc.insecure_channel("127.0.0.1:8500"))
stub.Predict(request)""",
        own=True,
    ),
    Client(
        "openai (JavaScript)", "JavaScript", "openai",
        """const client = new OpenAI({ baseURL: "http://127.0.0.1:8080/v1", apiKey: "none" });
await client.embeddings.create({ model: "minilm", input: ["a fine film"] });""",
    ),
    Client(
        "langchain (JavaScript)", "JavaScript", "@langchain/openai",
        """const configuration = { baseURL: "http://127.0.0.1:8080/v1" };
await new OpenAIEmbeddings({ configuration, apiKey: "none", model: "minilm" }).embedQuery("a fine film");""",
    ),
    Client(
        "cohere-ai", "JavaScript", "cohere-ai",
        """const client = new CohereClientV2({ environment: "http://127.0.0.1:8080", token: "none" });
await client.rerank({ model: "ranker", query, documents, topN: 3 });""",
    ),
    Client(
        "@huggingface/inference", "JavaScript", "@huggingface/inference",
        """const client = new InferenceClient("none");
const endpointUrl = "http://127.0.0.1:8080/pipeline/feature-extraction";
await client.featureExtraction({ endpointUrl, inputs: "a fine film" });""",
    ),
    Client(
        "java.net.http", "Java", "OpenJDK 17",
        """var body = HttpRequest.BodyPublishers.ofString("{\\"inputs\\": \\"a fine film\\"}");
var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:8080/embed")).POST(body).build();
HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());""",
    ),
    Client(
        "curl", "command", "curl 7.88",
        """curl --http2 http://127.0.0.1:8080/embed -d '{"inputs": "a fine film"}'""",
    ),
)  # fmt: skip


def version_of(client: Client) -> str:
    """Returns the version that is pinned, or that was tried."""
    if client.language == "JavaScript":
        return json.loads(PACKAGE.read_text())["dependencies"][client.package]
    if client.language != "Python":
        return client.package.split()[-1]
    file = ROOT / "requirements.txt" if client.own else REQUIREMENTS
    lines = [*file.read_text().splitlines(), *ALONE.read_text().splitlines()]
    pins = dict(re.match(r"([\w-]+)(?:\[.*\])?==(\S+)", line).groups() for line in lines if "==" in line)
    return pins[client.package]
