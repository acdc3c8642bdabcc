"""Text routes: classes, tokens, masks, sentence order, answers, entities, early exit."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from serving.client.tasks import constant
from serving.gateway.errors import bad_request
from serving.gateway.model import Outdated, Reading
from serving.gateway.routes import bodies
from serving.gateway.scheduler import QueuedRequest
from serving.gateway.service import Answer, Call, Service, best_first

# Scores of answers lie between this and its negative (serving.exportable.base.NO_ANSWER).


async def predict(service: Service, body: bodies.PredictBody, call: Call) -> Answer:
    """Returns each row's classes, likeliest first, as text-embeddings-inference does."""
    model, task = service.model(body.model, "classify")
    if body.function_to_apply and "value" in task.outputs:
        raise bad_request("function_to_apply is for classes, and the model gives a value; leave it out")
    rows, lone = bodies.rows_of(body.inputs, len(task.inputs))
    work = await service.answer(model, task, rows, call, body)
    found = _classes(model, work, task.outputs, body.function_to_apply or ("none" if body.raw_scores else None))
    answers = (_flagged(work, row, classes[: body.top_k]) for row, classes in enumerate(found))
    return next(answers) if lone else answers


def _flagged(work: QueuedRequest, row: int, found: list[dict]) -> list[dict]:
    return [one | work.flagged(row) for one in found]


# Of logits, by the names that transformers' pipelines have for them.
_FUNCTIONS = {
    "none": lambda logits: logits,
    "sigmoid": lambda logits: np.exp(-np.logaddexp(0, -logits)),
    "softmax": lambda logits: np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)),
}


def _classes(
    model: Reading, work: QueuedRequest, outputs: tuple[str, ...], function: str | None
) -> Iterator[list[dict]]:
    if "value" in outputs:
        return ([{"label": "value", "score": float(value)}] for value in work.output("value"))
    logits = work.output("logits")
    scores = _FUNCTIONS[function](logits) if function else work.output("probabilities")
    # Read at once: names of another model raise an error, after which the request begins anew.
    return map(_best_classes, scores, _class_names(model, work, logits))


def _best_classes(scores: np.ndarray, names: list[str]) -> list[dict]:
    return [{"label": names[one], "score": float(scores[one])} for one in best_first(scores)]


def _class_names(model: Reading, work: QueuedRequest, logits: np.ndarray) -> list[list[str]]:
    """Returns the names of all classes for each row; raises Outdated if the model that answered has others."""
    if "classes" in work.places[0][0].outputs:
        found = [list(map(_text, row)) for row in work.rows("classes")]
        if found != found[:1] * len(found):
            raise Outdated(model)
        return found
    # By the logits: probabilities may be rounded to the same number.
    size, likeliest = logits.shape[1], logits.argmax(axis=1)
    names = model.labels if len(model.labels) == size else list(map(str, range(size)))
    labels = list(map(_text, work.rows("label")))
    if model.labels and labels != [names[one] for one in likeliest]:
        raise Outdated(model)
    # A model that does not name its classes still names the likeliest one.
    return [[*names[:one], label, *names[one + 1 :]] for one, label in zip(likeliest, labels, strict=True)]


async def tokenize(service: Service, body: bodies.TokenizeBody, call: Call) -> Answer:
    """Returns tokens as text-embeddings-inference does, but without positions in the text."""
    model, task = service.model(body.model, "tokenize")
    texts, _ = bodies.listed(body.inputs)
    # A model of pairs gets the text as its first one.
    rows = [(text, *[""] * (len(task.inputs) - 1)) for text in texts]
    work = await service.answer(model, task, rows, call, body)
    return _tokens(model, work, body.add_special_tokens)


def _tokens(model: Reading, work: QueuedRequest, with_special: bool) -> Iterator[list[dict]]:
    for (ids, pieces), length in zip(work.each("input_ids", "pieces"), work.tokens, strict=True):
        tokens = [
            {"id": int(one), "text": _text(piece), "special": int(one) in model.special}
            for one, piece in zip(ids[:length], pieces[:length], strict=True)
        ]
        yield [token for token in tokens if with_special or not token["special"]]


async def decode(service: Service, body: bodies.DecodeBody, call: Call) -> Answer:
    """Returns the texts of lists of ids, as text-embeddings-inference does."""
    model, _ = service.model(body.model, "decode")
    rows = body.ids if any(isinstance(one, list) for one in body.ids) else [body.ids]
    service.check_count(len(rows))
    if not all(isinstance(row, list) and all(0 <= one < 2**31 for one in row) for row in rows):
        raise bad_request("ids must be a list of numbers from 0 on, or a list of such lists")
    sizes = np.array([len(row) for row in rows], np.int32)
    # A long row makes all others as long: a small body must not claim gigabytes.
    if len(rows) * int(sizes.max()) > service.options.max_body_bytes:
        raise bad_request(f"ids: {len(rows)} lists of up to {sizes.max()} ids are too many; send long lists alone")
    ids = np.zeros((len(rows), sizes.max()), np.int32)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    inputs = {"ids": ids, "lengths": sizes, "skip_special_tokens": constant(body.skip_special_tokens, len(rows))}
    begin = time.time_ns()
    found = await model.predict(inputs, ("text",), "decode", service.options.timeout_s)
    call.model_ns += time.time_ns() - begin
    return [_text(text) for text in found["text"]]


async def fill_mask(service: Service, body: bodies.MasksBody, call: Call) -> Answer:
    """Returns the likeliest tokens for each mask."""
    texts, lone = bodies.listed(body.inputs)
    _, work = await masks(service, texts, body, call)
    answers = (
        # Rows with fewer masks are filled up with masks whose pieces are empty.
        [
            _flagged(work, number, _scored(pieces, scores, "text")[: body.top_k])
            for pieces, scores in zip(*row, strict=True)
            if pieces[0]
        ]
        for number, row in enumerate(work.each("pieces", "probabilities"))
    )
    return next(answers) if lone else answers


async def masks(
    service: Service, texts: list[str], body: bodies.MasksBody, call: Call
) -> tuple[Reading, QueuedRequest]:
    """Returns the model that fills masks, and its answers."""
    model, task = service.model(body.model, "fill_mask")
    work = await service.answer(model, task, texts, call, body)
    check_top_k(body.top_k, work.rows("pieces"))
    return model, work


def check_top_k(wanted: int | None, rows: list[np.ndarray]) -> None:
    """Raises Refusal if `wanted` is larger than the top_k of rows [..., top_k]."""
    if wanted is not None and wanted > rows[0].shape[-1]:
        raise bad_request(f"top_k is {wanted}; the export gives {rows[0].shape[-1]} (its --top_k)")


def _scored(names: Any, scores: Any, key: str) -> list[dict]:
    return [{key: _text(names[place]), "score": float(scores[place])} for place in best_first(scores)]


async def answer(service: Service, body: bodies.AnswerBody, call: Call) -> Answer:
    """Returns each question's answers, with character positions in the context."""
    model, task = service.model(body.model, "answer")
    asked, lone = bodies.listed(body.inputs)
    work = await service.answer(model, task, [(one.context, one.question) for one in asked], call, body)
    check_top_k(body.top_k, work.rows("answers"))
    rows = [dict(zip(task.outputs, row, strict=True)) for row in work.each(*task.outputs)]
    found = [_answers(row, body.top_k) | work.flagged(place) for place, row in enumerate(rows)]
    return found[0] if lone else found


def _answers(row: dict[str, Any], count: int | None) -> dict[str, Any]:
    several = list(zip(row["answers"], row["starts"], row["ends"], row["probabilities"], strict=True))
    ranked = [several[place] for place in best_first(row["probabilities"])]
    # The best one's probability; none has one where the context holds no answer.
    score = max((share for text, _, _, share in ranked if text), default=0.0)
    return {
        **_span(row["answer"], row["start"], row["end"], score),
        "log_odds": float(row["score"]),
        "no_answer_score": float(row["no_answer_score"]),
        "answers": [_span(*one) for one in ranked if one[0]][:count],
    }


def _span(text: bytes, start: Any, end: Any, score: Any) -> dict[str, Any]:
    return {"answer": _text(text), "start": int(start), "end": int(end), "score": float(score)}


async def tag(service: Service, body: bodies.TextsBody, call: Call) -> Answer:
    """Returns each text's words with class and character positions."""
    model, task = service.model(body.model, "tag")
    texts, lone = bodies.listed(body.inputs)
    work = await service.answer(model, task, texts, call, body)
    answers = _words(work)
    return next(answers) if lone else answers


def _words(work: QueuedRequest) -> Iterator[list[dict]]:
    for number, one in enumerate(work.each("words", "labels", "starts", "ends", "probabilities")):
        words = [
            {"word": _text(word), "label": _text(label), "start": int(start), "end": int(end), "score": float(max(row))}
            for word, label, start, end, row in zip(*one, strict=True)
            if label
        ]
        yield _flagged(work, number, words)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
