"""Other people's clients, and the routes as they ask them, in front of a model server without a model."""

import base64
import json
import re

import cohere
import httpx
import numpy as np
import openai
import pytest

from serving.gateway.routes import ROUTES
from tests.serving.gateway.conftest import KINDS, LONGEST, SIZE, STEPS, TOLD, logits, vector


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


TEXTS = ["a fine film", "a dull one and long", "", "naïve café ☕"]
EXPECTED = unit(np.array([vector(text.encode()) for text in TEXTS]))


@pytest.fixture(scope="module")
def openai_client(shared_gateway):
    return openai.OpenAI(base_url=shared_gateway("embedder").url + "/v1", api_key="any", max_retries=0)


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_openai_client_embeds_a_list(openai_client, options):
    answer = openai_client.embeddings.create(model="default", input=TEXTS, **options)
    assert [one.index for one in answer.data] == [0, 1, 2, 3]
    vectors = [one.embedding for one in answer.data]
    if "encoding_format" in options and options["encoding_format"] == "base64":
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in vectors]
    np.testing.assert_allclose(vectors, EXPECTED, rtol=1e-6)
    # [CLS] and [SEP] count, as OpenAI counts what its models read.
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == (3 + 2) + (5 + 2) + 2 + (3 + 2)
    assert answer.model == "default"


def test_openai_client_embeds_one_text_with_fewer_dimensions(openai_client):
    answer = openai_client.embeddings.create(model="default", input=TEXTS[0], dimensions=3)
    np.testing.assert_allclose(answer.data[0].embedding, unit(vector(TEXTS[0].encode())[:3]), rtol=1e-6)


def test_openai_client_reads_errors(openai_client):
    with pytest.raises(openai.NotFoundError, match="the model 'gpt' does not exist; there is default"):
        openai_client.embeddings.create(model="gpt", input="x")
    with pytest.raises(openai.BadRequestError, match=f"dimensions is 99; the model's vectors have {SIZE}"):
        openai_client.embeddings.create(model="default", input="x", dimensions=99)
    for ids in ([1, 2], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="token ids are not taken"):
            openai_client.embeddings.create(model="default", input=ids)
    with pytest.raises(openai.BadRequestError, match="no text in the request"):
        openai_client.embeddings.create(model="default", input=[])


def test_openai_client_lists_models(openai_client):
    assert [model.id for model in openai_client.models.list()] == ["default"]
    assert openai_client.models.retrieve("default").id == "default"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("other")


def probability(query, text):
    raw = logits((query.encode(), text.encode()))
    return 1 / (1 + np.exp(raw[0] - raw[1]))


DOCUMENTS = ["Paris", "London", "Berlin is a city", "Rome"]


@pytest.mark.parametrize("version", [1, 2])
def test_cohere_client_reranks(shared_gateway, version):
    client_of = {1: cohere.Client, 2: cohere.ClientV2}[version]
    client = client_of(api_key="any", base_url=shared_gateway("cross-encoder").url)
    answer = client.rerank(model="default", query="capital of France", documents=DOCUMENTS, top_n=3)
    expected = np.array([probability("capital of France", text) for text in DOCUMENTS])
    order = np.argsort(-expected)[:3]
    assert [one.index for one in answer.results] == order.tolist()
    np.testing.assert_allclose([one.relevance_score for one in answer.results], expected[order], rtol=1e-5)
    assert answer.meta.api_version.version == str(version) and answer.id


def test_cohere_version_1_takes_objects_and_gives_them_back(shared_gateway):
    client = cohere.Client(api_key="any", base_url=shared_gateway("cross-encoder").url)
    documents = [{"text": text} for text in DOCUMENTS]
    answer = client.rerank(model="default", query="q", documents=documents, return_documents=True)
    assert {one.document.text for one in answer.results} == set(DOCUMENTS)
    with pytest.raises(cohere.BadRequestError, match=r"documents\[0\] has no string 'text'"):
        client.rerank(model="default", query="q", documents=[{"title": "x"}])
    with pytest.raises(cohere.BadRequestError, match="rank_fields"):
        client.rerank(model="default", query="q", documents=documents, rank_fields=["title"])


def ask(gateway, path, **body):
    answer = gateway.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_tei_rerank(shared_gateway):
    gateway = shared_gateway("cross-encoder")
    answer = ask(gateway, "/rerank", query="q", texts=DOCUMENTS, return_text=True)
    scores = [one["score"] for one in answer]
    assert scores == sorted(scores, reverse=True) and {one["text"] for one in answer} == set(DOCUMENTS)
    assert answer[0]["index"] == DOCUMENTS.index(answer[0]["text"])
    raw = ask(gateway, "/rerank", query="q", texts=DOCUMENTS, raw_scores=True)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp([-one["score"] for one in raw])), rtol=1e-5)


def test_rerank_by_a_regressor(shared_gateway):
    raw = ask(shared_gateway("regressor"), "/rerank", query="q", texts=["a", "b"], raw_scores=True)
    expected = {index: float(logits((b"q", text))[0]) for index, text in enumerate((b"a", b"b"))}
    assert {one["index"]: one["score"] for one in raw} == pytest.approx(expected, rel=1e-6)


def test_tei_embed(shared_gateway):
    gateway = shared_gateway("embedder")
    np.testing.assert_allclose(ask(gateway, "/embed", inputs=TEXTS), EXPECTED, rtol=1e-6)
    np.testing.assert_allclose(
        ask(gateway, "/embed", inputs=TEXTS[0], normalize=False), [vector(TEXTS[0].encode())], rtol=1e-6
    )


def test_tei_predict_of_texts_and_pairs(shared_gateway):
    single = shared_gateway("classifier")
    answer = ask(single, "/predict", inputs="a fine film")
    assert {one["label"] for one in answer} == {"dull", "fine"}
    assert answer[0]["score"] > answer[1]["score"] and sum(one["score"] for one in answer) == pytest.approx(1)
    several = ask(single, "/predict", inputs=["a fine film", "b"])
    assert several[0] == answer and len(several) == 2
    assert ask(single, "/predict", inputs=[["a fine film"], ["b"]]) == several
    raw = ask(single, "/predict", inputs="a fine film", raw_scores=True)
    assert [one["label"] for one in raw] == [one["label"] for one in answer] and raw[0]["score"] != answer[0]["score"]
    pair = shared_gateway("cross-encoder")
    lone = ask(pair, "/predict", inputs=["a", "b"])
    assert ask(pair, "/predict", inputs=[["a", "b"], ["c", "d"]])[0] == lone
    # This one has no signature that names the classes: the likeliest is named by its answer.
    assert lone[0]["label"] in ("dull", "fine") and lone[1]["label"] in ("0", "1")
    refused = pair.http.post("/predict", json={"inputs": [["a", "b", "c"]]})
    assert refused.status_code == 400 and "takes two texts" in refused.json()["error"]


def test_tei_tokenize(shared_gateway):
    gateway = shared_gateway("embedder")
    (tokens,) = ask(gateway, "/tokenize", inputs="fine film")
    assert [token["text"] for token in tokens] == ["[CLS]", "fine", "film", "[SEP]"]
    assert [token["special"] for token in tokens] == [True, False, False, True]
    plain = ask(gateway, "/tokenize", inputs=["fine film", ""], add_special_tokens=False)
    assert [[token["text"] for token in row] for row in plain] == [["fine", "film"], []]


def test_special_tokens_are_known_where_rows_end_with_both(shared_gateway):
    gateway = shared_gateway("cls last")
    (tokens,) = ask(gateway, "/tokenize", inputs="fine film")
    found = [(token["text"], token["special"]) for token in tokens]
    assert found == [("fine", False), ("film", False), ("[SEP]", True), ("[CLS]", True)]
    plain = ask(gateway, "/tokenize", inputs=["fine film", ""], add_special_tokens=False)
    assert [[token["text"] for token in row] for row in plain] == [["fine", "film"], []]


@pytest.mark.parametrize(
    ("path", "body", "scores"),
    [
        ("/sentence_order", {"inputs": ["a", "b"]}, lambda answer: [one["score"] for one in answer]),
        ("/fill_mask", {"inputs": "a [MASK]"}, lambda answer: [one["score"] for one in answer[0]]),
        ("/embed_sparse", {"inputs": "a"}, lambda answer: [one["value"] for one in answer[0]]),
        (
            "/answer",
            {"inputs": {"question": "a", "context": "Paris is"}},
            lambda answer: [one["score"] for one in answer["answers"]],
        ),
    ],
)
def test_answers_are_sorted_whatever_the_order_of_the_model(shared_gateway, path, body, scores):
    gateway = shared_gateway(next(KINDS[route.task] for route in ROUTES if route.path == path))
    try:
        found = []
        for gateway.model.reverses in (False, True):
            found.append(scores(ask(gateway, path, **body)))
    finally:
        gateway.model.reverses = False
    assert len(found[0]) == 2 and found[0] == sorted(found[0], reverse=True) == found[1]


def test_masks_are_filled(shared_gateway):
    gateway = shared_gateway("pretrainer")
    mask = [{"text": "mat", "score": pytest.approx(0.7)}, {"text": "dog", "score": pytest.approx(0.2)}]
    assert ask(gateway, "/fill_mask", inputs="a [MASK] and a [MASK]") == [mask, mask]
    assert ask(gateway, "/fill_mask", inputs=["no mask", "one [MASK]"]) == [[], [mask]]
    assert gateway.http.get("/info").json()["models"][0]["mask"] == "[MASK]"


def test_terms_have_their_weights(shared_gateway):
    (terms,) = ask(shared_gateway("pretrainer"), "/embed_sparse", inputs="a fine film")
    assert terms == [{"index": 5, "value": 1.5, "text": "fine"}, {"index": 9, "value": 0.25, "text": "film"}]


def test_order_of_pairs(shared_gateway):
    answer = [{"label": "in order", "score": 0.75}, {"label": "not in order", "score": 0.25}]
    assert ask(shared_gateway("pretrainer"), "/sentence_order", inputs=["a", "b"]) == answer
    assert ask(shared_gateway("pretrainer"), "/sentence_order", inputs=[["a", "b"], ["c", "d"]]) == [answer, answer]


def test_answers_are_spans_of_their_contexts(shared_gateway):
    question = {"question": "who?", "context": "Zoë met Al"}
    answer = ask(shared_gateway("spans"), "/answer", inputs=question)
    assert {"answer": "Zoë", "start": 0, "end": 3, "score": 1.5}.items() <= answer.items()
    assert answer["no_answer_score"] == -0.75 and [one["answer"] for one in answer["answers"]] == ["Zoë", "met"]
    several = ask(shared_gateway("spans"), "/answer", inputs=[question, {"question": "who?", "context": ""}])
    assert several[0] == answer and several[1]["answer"] == "" and several[1]["answers"] == []
    assert (several[1]["score"], several[1]["no_answer_score"]) == (-1e4, 1e4)


def test_words_have_classes_and_places(shared_gateway):
    rows = ask(shared_gateway("tagger"), "/tag", inputs=["Zoë met Al", "", "a b c d e f"])
    assert [(one["word"], one["label"], one["start"], one["end"]) for one in rows[0]] == [
        ("Zoë", "O", 0, 3), ("met", "THING", 4, 7), ("Al", "O", 8, 10),
    ]  # fmt: skip
    assert rows[1] == [] and len(rows[2]) == 5 and rows[0] == ask(shared_gateway("tagger"), "/tag", inputs="Zoë met Al")


def test_rows_tell_the_step_that_they_left_at(shared_gateway):
    gateway = shared_gateway("pretrainer")
    assert ask(gateway, "/early_exit", inputs=["a", "b"], threshold=0.25) == [{"steps": 3, "of": STEPS}] * 2
    assert ask(gateway, "/early_exit", inputs="a", threshold=7)["steps"] == STEPS
    assert gateway.http.get("/info").json()["models"][0]["steps"] == {"lowest": 1, "highest": STEPS}
    (row,) = ask(shared_gateway("exiting classifier"), "/early_exit", inputs=["a"], threshold=0.5)
    assert row["steps"] == 6 and row["classes"] == ask(shared_gateway("exiting classifier"), "/predict", inputs="a")


def test_answers_say_where_their_time_went(shared_gateway):
    timing = shared_gateway("embedder").http.post("/embed", json={"inputs": "a"}).headers["server-timing"]
    told = {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", timing)}
    assert list(told) == ["queue", "model", "total"] and 0 < told["model"] < told["total"]


def test_long_texts_are_cut_unless_that_is_refused(shared_gateway):
    gateway = shared_gateway("embedder")
    long = "word " * 10_000
    assert len(ask(gateway, "/embed", inputs=long)) == 1
    assert gateway.service.models["default"].estimate.longest == LONGEST
    refused = gateway.http.post("/embed", json={"inputs": ["short", long], "truncate": False})
    assert refused.status_code == 413 and "input 1 does not fit" in refused.json()["error"]
    assert len(ask(gateway, "/embed", inputs=["short"], truncate=False)) == 1


LONG, FULL = "word " * 40, "word " * (LONGEST - 2)


def test_answers_say_what_was_truncated(shared_gateway):
    gateway = shared_gateway("telling classifier")
    answer = gateway.http.post("/predict", json={"inputs": ["short", LONG, FULL]})
    assert [[one["truncated"] for one in row] for row in answer.json()] == [[False] * 2, [True] * 2, [False] * 2]
    assert answer.headers["x-truncated-inputs"] == "1"
    # Known to the token: a row that is just full is not cut.
    for text, status in ((FULL, 200), (LONG, 413)):
        assert gateway.http.post("/predict", json={"inputs": text, "truncate": False}).status_code == status
    text = gateway.http.get("/metrics").text
    # FULL was answered twice.
    for name, value in {"text_tokens": 1 + 40 + 2 * 14, "truncated_tokens": 26, "truncated_inputs": 1}.items():
        assert f'gateway_{name}_total{{model="default"}} {value}.0' in text


def test_truncation_is_counted_where_a_long_text_meets_a_single_output(shared_gateway):
    pairs = shared_gateway("telling regressor")
    ranked = {one["index"]: one["truncated"] for one in ask(pairs, "/rerank", query="q", texts=["a", LONG])}
    assert ranked == {0: False, 1: True}
    assert "truncated" not in ask(pairs, "/rerank", query="q", texts=["a", "b"])[0], "not counted: not known"
    embedder = shared_gateway("telling embedder")
    answer = embedder.http.post("/embed", json={"inputs": ["a", LONG]})
    assert answer.headers["x-truncated-inputs"] == "1"
    data = ask(embedder, "/v1/embeddings", input=["a", LONG])["data"]
    assert [one["truncated"] for one in data] == [False, True]
    assert 'gateway_truncated_inputs_total{model="default"} 2.0' in embedder.http.get("/metrics").text


def test_an_older_export_says_nothing_of_truncation(shared_gateway):
    for kind, path, body in (
        ("classifier", "/predict", {"inputs": [LONG, "a"]}),
        ("embedder", "/v1/embeddings", {"input": LONG}),
        ("regressor", "/rerank", {"query": "q", "texts": [LONG]}),
    ):
        answer = shared_gateway(kind).http.post(path, json=body)
        assert answer.status_code == 200 and "truncated" not in answer.text
        assert "x-truncated-inputs" not in answer.headers


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [("telling classifier", "/predict", {"inputs": [LONG]}), ("telling embedder", "/v1/embeddings", {"input": [LONG]})],
)
def test_an_older_version_that_answers_meanwhile_is_asked_for_what_it_has(shared_gateway, kind, path, body):
    gateway = shared_gateway(kind)
    gateway.model.lacks = frozenset(TOLD)
    try:
        answer = gateway.http.post(path, json=body)
    finally:
        gateway.model.lacks = frozenset()
    assert answer.status_code == 200, answer.text
    assert "truncated" not in answer.text and "x-truncated-inputs" not in answer.headers


def test_what_a_model_cannot_is_said(shared_gateway):
    answer = shared_gateway("embedder").http.post("/rerank", json={"query": "q", "texts": ["a"]})
    assert answer.status_code == 400 and answer.json()["error"] == "no model here can rerank"


def test_a_model_that_cannot_count_tokens_still_embeds(shared_gateway):
    answer = ask(shared_gateway("bare"), "/v1/embeddings", input=["eight ch", "x" * 400])
    assert answer["usage"]["prompt_tokens"] == (2 + 2) + (2 + 100)


def test_pages(shared_gateway):
    gateway = shared_gateway("classifier")
    info = gateway.http.get("/info").json()
    assert info["model_id"] == "default" and info["models"][0]["labels"] == ["dull", "fine"]
    assert info["models"][0]["routes"] == ["/predict", "/tokenize"] and info["max_input_length"] == LONGEST
    page = gateway.http.get("/docs")
    assert page.status_code == 200 and "POST /v1/embeddings" in page.text and "<b>default</b>" in page.text
    assert "http:" not in page.text.replace("http://HOST:PORT", ""), "it loads something from elsewhere"
    assert gateway.http.get("/nowhere").status_code == 404
    wrong = gateway.http.get("/embed")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"


def test_the_openapi_document_has_every_route_and_its_examples_work(shared_gateway):
    document = shared_gateway("embedder").http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    kinds = {route.path: KINDS.get(route.task, "embedder") for route in ROUTES}
    posts = {path: methods["post"] for path, methods in document["paths"].items() if "post" in methods}
    assert set(posts) == set(kinds)
    for path, operation in posts.items():
        content = operation["requestBody"]["content"]["application/json"]
        assert content["schema"]["$ref"].rpartition("/")[2] in document["components"]["schemas"]
        ask(shared_gateway(kinds[path]), path, **content["example"])
    gets = {path for path, methods in document["paths"].items() if "get" in methods}
    for path in gets:
        assert shared_gateway("embedder").http.get(path).status_code == 200


def test_metrics_count(shared_gateway):
    gateway = shared_gateway("regressor")
    ask(gateway, "/rerank", query="q", texts=["a", "b"])
    gateway.http.post("/rerank", content=b"{")
    text = gateway.http.get("/metrics").text
    assert 'gateway_requests_total{route="/rerank",status="400"} 1.0' in text
    assert 'gateway_model_live{model="default"} 1.0' in text
    assert "gateway_batch_tokens_sum" in text and "gateway_queue_rows 0.0" in text


def test_answers_are_those_of_single_requests(shared_gateway):
    gateway = shared_gateway("embedder")
    texts = [f"{'word ' * (n % 9)}{n}" for n in range(300)]
    together = ask(gateway, "/embed", inputs=texts)
    alone = [ask(gateway, "/embed", inputs=text)[0] for text in texts[::37]]
    np.testing.assert_array_equal(together[::37], alone)


def test_plain_httpx_with_a_body_of_other_fields(shared_gateway):
    body = {"input": "a", "model": "default", "user": "x", "encoding_format": None, "unknown": {"a": [1]}}
    answer = httpx.post(shared_gateway("embedder").url + "/v1/embeddings", content=json.dumps(body))
    assert answer.status_code == 200
