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


def openai_floats(at):
    return openai_vectors(at, encoding_format="float")


def openai_base64(at):
    return openai_vectors(at)


def openai_dimensions(at):
    return openai_vectors(at, dimensions=8)


def openai_many(at):
    return openai_vectors(at, at.many)


async def openai_async(at):
    import openai

    async with openai.AsyncOpenAI(base_url=at.v1, api_key=KEY, max_retries=0) as client:
        asked = [client.embeddings.create(model="embedder", input=at.texts[n % len(at.texts)]) for n in range(16)]
        vectors = [answer.data[0].embedding for answer in await asyncio.gather(*asked)]
    return vectors[-len(at.texts) :]


def openai_models(at):
    return [one.id for one in openai_client(at).models.list()]


def openai_other(at):
    openai_client(at).embeddings.create(model="gpt", input="x")


def openai_ids(at):
    openai_client(at).embeddings.create(model="embedder", input=[[1, 2]])


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


def haystack_text(at):
    from haystack.components.embedders import OpenAITextEmbedder
    from haystack.utils import Secret

    key = Secret.from_token(KEY)
    return OpenAITextEmbedder(api_key=key, api_base_url=at.v1, model="embedder").run(at.texts[0])["embedding"]


def haystack_documents(at):
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder
    from haystack.utils import Secret

    key = Secret.from_token(KEY)
    embedder = OpenAIDocumentEmbedder(api_key=key, api_base_url=at.v1, model="embedder", progress_bar=False)
    return [one.embedding for one in embedder.run([Document(content=text) for text in at.texts])["documents"]]


def haystack_tei_text(at):
    from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder

    embedder = HuggingFaceAPITextEmbedder("text_embeddings_inference", {"url": f"{at.url}/embed"})
    return embedder.run(at.texts[0])["embedding"]


def haystack_tei_documents(at):
    from haystack import Document
    from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder

    where = {"url": f"{at.url}/embed"}
    embedder = HuggingFaceAPIDocumentEmbedder("text_embeddings_inference", where, progress_bar=False)
    return [one.embedding for one in embedder.run([Document(content=text) for text in at.texts])["documents"]]


def haystack_tei_sparse(at):
    from haystack_integrations.components.embedders.huggingface_api import HuggingFaceTEISparseTextEmbedder

    found = HuggingFaceTEISparseTextEmbedder(api_base_url=at.url).run(at.texts[0])["sparse_embedding"]
    return sorted(map(list, zip(found.indices, found.values)))


def haystack_tei_ranker(at):
    from haystack import Document
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    ranker = HuggingFaceTEIRanker(url=at.url, top_k=2, max_retries=0)
    found = ranker.run(query=at.query, documents=[Document(content=text) for text in at.documents])["documents"]
    return [[at.documents.index(one.content), one.score] for one in found]


def litellm_vectors(at, model, base, **options):
    import litellm

    answer = litellm.embedding(model, at.texts, api_base=base, api_key=KEY, max_retries=0, **options)
    return [one["embedding"] for one in answer.data]


def litellm_openai(at):
    return litellm_vectors(at, "openai/embedder", at.v1)


def litellm_vllm(at):
    return litellm_vectors(at, "hosted_vllm/embedder", at.v1)


def litellm_tei(at):
    return litellm_vectors(at, "huggingface/embedder", f"{at.url}/embed", input_type="embed")


def litellm_ranking(at, model, base):
    import litellm

    answer = litellm.rerank(model, at.query, at.documents, top_n=2, api_base=base, api_key=KEY)
    return [[one["index"], one["relevance_score"]] for one in answer.results]


def litellm_rerank(at):
    return litellm_ranking(at, "cohere/pairs", f"{at.url}/v2/rerank")


def litellm_vllm_rerank(at):
    return litellm_ranking(at, "hosted_vllm/pairs", at.url)


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


def txtai(at):
    from txtai.embeddings import Embeddings

    return Embeddings(path="openai/embedder", method="litellm", vectors={"api_base": at.v1, "api_key": KEY})


def txtai_vectors(at):
    return listed(txtai(at).batchtransform(at.texts))


def txtai_search(at):
    embeddings = txtai(at)
    embeddings.index(at.documents)
    return embeddings.search(at.query, 1)[0][0]


async def kernel_embed(at):
    import openai
    from semantic_kernel.connectors.ai.open_ai import OpenAITextEmbedding

    async with openai.AsyncOpenAI(base_url=at.v1, api_key=KEY) as client:
        embedder = OpenAITextEmbedding(ai_model_id="embedder", async_client=client)
        return listed(await embedder.generate_embeddings(at.texts))
