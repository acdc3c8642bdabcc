"""What OpenAI's client does, and frameworks that ask as it does. Run by calls.py."""

import asyncio
from functools import cache

KEY = "none"


def listed(vectors):
    return [[float(number) for number in vector] for vector in vectors]


@cache
def openai_client(at):
    import openai

    return openai.OpenAI(base_url=at.v1, api_key=KEY, max_retries=0)


def openai_vectors(at, texts=None, **options):
    answer = openai_client(at).embeddings.create(model="embedder", input=texts or at.texts, **options)
    assert [one.index for one in answer.data] == list(range(len(texts or at.texts)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    return [one.embedding for one in answer.data]


def openai_base64(at):
    return openai_vectors(at)


def openai_many(at):
    return openai_vectors(at, at.many)


async def openai_async(at):
    import openai

    async with openai.AsyncOpenAI(base_url=at.v1, api_key=KEY, max_retries=0) as client:
        asked = [client.embeddings.create(model="embedder", input=at.texts[n % len(at.texts)]) for n in range(16)]
        vectors = [answer.data[0].embedding for answer in await asyncio.gather(*asked)]
    return vectors[-len(at.texts) :]


def openai_chat(at):
    openai_client(at).chat.completions.create(model="embedder", messages=[{"role": "user", "content": "x"}])


# Frameworks that ask as OpenAI's clients do


def langchain(at):
    from langchain_openai import OpenAIEmbeddings

    return OpenAIEmbeddings(base_url=at.v1, api_key=KEY, model="embedder", check_embedding_ctx_length=False)


def langchain_documents(at):
    return langchain(at).embed_documents(at.texts)


async def langchain_query(at):
    return await langchain(at).aembed_query(at.texts[0])


def llama(at):
    from llama_index.embeddings.openai import OpenAIEmbedding

    return OpenAIEmbedding(api_base=at.v1, api_key=KEY, model_name="embedder")


def llama_texts(at):
    return llama(at).get_text_embedding_batch(at.texts)


async def llama_query(at):
    return await llama(at).aget_query_embedding(at.texts[0])


def chroma(at, name):
    from chromadb.utils import embedding_functions

    if name == "openai":
        return embedding_functions.OpenAIEmbeddingFunction(api_key=KEY, api_base=at.v1, model_name="embedder")
    return embedding_functions.HuggingFaceEmbeddingServer(f"{at.url}/embed")


def chroma_openai(at):
    return listed(chroma(at, "openai")(at.texts))


def chroma_tei(at):
    return listed(chroma(at, "tei")(at.texts))


def chroma_query(at):
    import chromadb

    collection = chromadb.EphemeralClient().create_collection(
        "texts", embedding_function=chroma(at, "openai"), metadata={"hnsw:space": "cosine"}
    )
    collection.add(ids=list(map(str, range(len(at.documents)))), documents=at.documents)
    return int(collection.query(query_texts=[at.query], n_results=1)["ids"][0][0])


def qdrant_query(at):
    from qdrant_client import QdrantClient, models

    client, vectors = QdrantClient(":memory:"), openai_vectors(at, at.documents, encoding_format="float")
    kept = models.VectorParams(size=len(vectors[0]), distance=models.Distance.COSINE)
    client.create_collection("texts", vectors_config=kept)
    client.upsert("texts", [models.PointStruct(id=id, vector=vector) for id, vector in enumerate(vectors)])
    (asked,) = openai_vectors(at, [at.query], encoding_format="float")
    return client.query_points("texts", query=asked, limit=1).points[0].id
