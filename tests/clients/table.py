"""The table of clients: each call that is made to one pair of servers, and what must come back.

`calls.py` and `calls.mjs` have a program for each row of their language.
The site's page of clients is written from this table and clients.py.
"""

from dataclasses import dataclass

# What comes back, in the words of the page. tests/clients/answers.py asks our own client for the same.
OUTCOMES = {
    "vectors": "the model's vectors",
    "many vectors": "the model's 2,048 vectors, in order",
    "one vector": "the model's vector of the first text",
    "similarities": "the cosine of each text with the first",
    "nearest": "the index of the nearest text",
    "two of the ranking": "the two most relevant documents",
    "classes of one": "all classes of a text, likeliest first",
    "pieces for a mask": "the likeliest pieces for the mask",
    "entities": "the parts of a text that have a class",
    "an answer": "the likeliest span of the context",
    "available": "the state of the version",
}


@dataclass(frozen=True)
class Row:
    """A call of a client.

    Attributes:
        client: Its name.
        program: The function that makes the call.
        call: As the page has it.
        answer: Of OUTCOMES; "" for a call that is refused.
        refused: What the client's error says: its status and words of the message.
        why: Of a refused call: what to do, for the page.
    """

    client: str
    program: str
    call: str
    answer: str = ""
    refused: str = ""
    why: str = ""


_IDS = "Bad ?Request.*token ids are not taken|400.*token ids are not taken"
_SEND_TEXT = "send text; in langchain-openai for Python `check_embedding_ctx_length=False`"
_NOT_HERE = "404.*(does not exist|no such route)"

ROWS = (
    Row("openai", "openai_base64", "`embeddings.create`, as the client asks by itself: base64", "vectors"),
    Row("openai", "openai_many", "the same, 2,048 texts", "many vectors"),
    Row("openai", "openai_async", "`AsyncOpenAI`, 16 calls at once", "vectors"),
    Row("openai", "openai_chat", "`chat.completions.create`", refused=_NOT_HERE, why="encoders write no text"),
    Row("langchain-openai", "langchain_documents", "`embed_documents`", "vectors"),
    Row("langchain-openai", "langchain_query", "`aembed_query`", "one vector"),
    Row("llama-index", "llama_texts", "`get_text_embedding_batch`", "vectors"),
    Row("llama-index", "llama_query", "`aget_query_embedding`", "one vector"),
    Row("chromadb", "chroma_openai", "`OpenAIEmbeddingFunction`", "vectors"),
    Row("chromadb", "chroma_tei", "`HuggingFaceEmbeddingServer`", "vectors"),
    Row("chromadb", "chroma_query", "a collection of it: `query`", "nearest"),
    Row("qdrant-client", "qdrant_query", "vectors of the gateway in a collection: `query_points`", "nearest"),
    Row("cohere", "cohere_rerank", "`ClientV2.rerank`, `top_n=2`", "two of the ranking"),
    Row("cohere", "cohere_embed", "`ClientV2.embed`", "vectors"),
    Row("huggingface_hub", "hub_vector", "`feature_extraction` of a text", "one vector"),
    Row("huggingface_hub", "hub_vectors", "`feature_extraction` of a list at `/`", "vectors"),
    Row("huggingface_hub", "hub_classes", "`text_classification`", "classes of one"),
    Row("huggingface_hub", "hub_mask", "`fill_mask`", "pieces for a mask"),
    Row("huggingface_hub", "hub_words", "`token_classification`", "entities"),
    Row("huggingface_hub", "hub_answer", "`question_answering`", "an answer"),
    Row("huggingface_hub", "hub_similarity", "`sentence_similarity`", "similarities"),
    Row("huggingface_hub", "hub_async", "`AsyncInferenceClient.feature_extraction`", "one vector"),
    Row("ovmsclient", "ovms_grpc", "gRPC: `predict`, `model_version=1`", "vectors"),
    Row("ovmsclient", "ovms_http", "HTTP: `predict`, `model_version=1`", "vectors"),
    Row("ovmsclient", "ovms_status", "`get_model_status`, `model_version=1`", "available"),
    Row("ovmsclient", "ovms_zero", "`predict` without `model_version`", refused="NotFound.*Servable not found",
        why="name the version: without one this client asks for version 0, which TensorFlow Serving's own server"
        " does not find either"),
    Row("requests", "requests_rows", "REST of the model server: `instances`", "vectors"),
    Row("requests", "requests_columns", "REST of the model server: `inputs`", "vectors"),
    Row("requests", "requests_embed", "text-embeddings-inference's `/embed`", "vectors"),
    Row("tensorflow-serving-api", "serving_predict", "gRPC: `Predict`", "vectors"),
    Row("openai (JavaScript)", "openaiVectors", "`embeddings.create`", "vectors"),
    Row("openai (JavaScript)", "openaiMany", "the same, 2,048 texts", "many vectors"),
    Row("openai (JavaScript)", "openaiIds", "token ids", refused=_IDS, why=_SEND_TEXT),
    Row("curl", "curl_gateway", "`--http2`, POST to the gateway", "vectors"),
    Row("curl", "curl_rest", "`--http2`, POST to REST of the model server", "vectors")
)  # fmt: skip
