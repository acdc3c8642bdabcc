"""Text routes: classes, tokens, masks, answers, tags; and the pipelines of Hugging Face's clients over them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from serving.client.tasks import relevance
from serving.gateway.errors import bad_request
from serving.gateway.model import Outdated
from serving.gateway.routes import bodies
from serving.gateway.routes.retrieval import meta_of
from serving.gateway.scheduler import QueuedRequest
from serving.gateway.service import Answer, Call, best_first
from tfrecords.answers.numbers import softmax


async def predict(call: Call, body: bodies.PredictBody) -> Answer:
    """Returns each row's classes, likeliest first, as text-embeddings-inference does."""
    lone = False

    def rows(task):
        nonlocal lone
        if body.function_to_apply and "value" in task.outputs:
            raise bad_request("function_to_apply is for classes, and the model gives a value; leave it out")
        read, lone = bodies.rows_of(body.inputs, len(task.inputs))
        return read

    work = await call.ask(body, "classify", rows)
    found = _classes(work, body.function_to_apply or ("none" if body.raw_scores else None))
    answers = (_flagged(work, row, classes[: body.top_k]) for row, classes in enumerate(found))
    return next(answers) if lone else answers


async def text_classification(call: Call, body: bodies.PredictBody) -> Answer:
    """Answers like /predict, but wraps the classes of a single text in a list."""
    found = await predict(call, body)
    return [found] if isinstance(found, list) else found


def _flagged(work: QueuedRequest, row: int, found: list[dict]) -> list[dict]:
    return [one | work.flagged(row) for one in found]


# Of logits, by the names that transformers' pipelines have for them.
_FUNCTIONS = {"none": np.asarray, "sigmoid": relevance, "softmax": softmax}


def _classes(work: QueuedRequest, function: str | None) -> Iterable[list[dict]]:
    if "value" in work.task.outputs:
        return ([{"label": "value", "score": float(value)}] for value in work.output("value"))
    names = work.output("classes")
    if (names != names[0]).any():
        raise Outdated(work.model)
    scores = _FUNCTIONS[function](work.output("logits")) if function else work.output("probabilities")
    return (_scored(names[0], row, "label") for row in scores)


def _scored(names: Any, scores: Any, key: str) -> list[dict]:
    return [{key: _text(names[place]), "score": float(scores[place])} for place in best_first(scores)]


async def tokenize(call: Call, body: bodies.TokenizeBody) -> Answer:
    """Returns tokens as text-embeddings-inference does, but without positions in the text."""
    texts, _ = bodies.listed(body.inputs)
    # A model of pairs gets the text as its first one.
    work = await call.ask(body, "tokenize", lambda task: [(text, *[""] * (len(task.inputs) - 1)) for text in texts])
    return _tokens(work, body.add_special_tokens)


def _tokens(work: QueuedRequest, with_special: bool) -> Iterator[list[dict]]:
    special = work.model.special
    for (ids, pieces), length in zip(work.each("input_ids", "pieces"), work.tokens, strict=True):
        yield [
            {"id": int(one), "text": _text(piece), "special": int(one) in special}
            for one, piece in zip(ids[:length], pieces[:length], strict=True)
            if with_special or int(one) not in special
        ]


async def cohere_tokenize(call: Call, body: bodies.CohereTokensBody) -> Answer:
    """Returns a text's ids and pieces without special tokens."""
    asked = bodies.TokenizeBody(inputs=body.text, model=body.model, add_special_tokens=False)
    (tokens,) = await tokenize(call, asked)
    ids, pieces = [token["id"] for token in tokens], [token["text"] for token in tokens]
    return {"tokens": ids, "token_strings": pieces, "meta": meta_of("1")}


async def _masks(call: Call, body: bodies.MasksBody) -> tuple[list[str], bool, QueuedRequest]:
    texts, lone = bodies.listed(body.inputs)
    work = await call.ask(body, "fill_mask", texts)
    _check_top_k(body.top_k, work.rows("pieces"))
    return texts, lone, work


async def fill_mask(call: Call, body: bodies.MasksBody) -> Answer:
    """Returns the likeliest tokens for each mask."""
    texts, lone, work = await _masks(call, body)
    answers = (
        [_flagged(work, number, _scored(pieces, scores, "text")[: body.top_k]) for pieces, scores in masks]
        for number, masks in enumerate(_found_masks(texts, work, "pieces", "probabilities"))
    )
    return next(answers) if lone else answers


async def pipeline_fill_mask(call: Call, body: bodies.MasksBody) -> Answer:
    """Returns the likeliest words for a mask; a list of such lists for several masks or texts."""
    texts, lone, work = await _masks(call, body)
    answers = _filled(texts, work, body.top_k)
    return next(answers) if lone else answers


def _found_masks(texts: list[str], work: QueuedRequest, *outputs: str) -> Iterator[list[tuple]]:
    # The last output is of probabilities; a row with fewer masks than others is filled up with zeros.
    for text, row in zip(texts, work.each(*outputs), strict=True):
        found = [mask for mask in zip(*row, strict=True) if mask[-1].any()]
        if not found:
            name = work.model.mask or "as the vocabulary calls it"
            raise bad_request(f"the text '{text[:50]}' has no mask ({name})")
        yield found


def _filled(texts: list[str], work: QueuedRequest, top_k: int | None) -> Iterator[Iterable]:
    name = work.model.mask
    for text, found in zip(texts, _found_masks(texts, work, "texts", "ids", "probabilities"), strict=True):
        # As iterators: a text is repeated in each of its sequences, which may together be large.
        words = (islice(_words_for(text, name, place, *mask), top_k) for place, mask in enumerate(found))
        yield words if len(found) > 1 else next(words)


def _words_for(
    text: str, mask: str, place: int, words: np.ndarray, ids: np.ndarray, scores: np.ndarray
) -> Iterator[dict]:
    parts = text.split(mask) if mask else [text]
    before, after = mask.join(parts[: place + 1]), mask.join(parts[place + 1 :])

    def sequence(word: str) -> str:
        # A piece of WordPiece that goes on, or one of byte-level BPE that has its blank.
        return f"{before if word[:2] != '##' and word[:1] != ' ' else before.rstrip()}{word.removeprefix('##')}{after}"

    for one in best_first(scores):
        word = _text(words[one])
        yield {"score": float(scores[one]), "token": int(ids[one]), "token_str": word, "sequence": sequence(word)}


def _check_top_k(wanted: int | None, rows: list[np.ndarray]) -> None:
    """Raises Refusal if `wanted` is larger than the top_k of rows [..., top_k]."""
    if wanted is not None and wanted > rows[0].shape[-1]:
        raise bad_request(f"top_k is {wanted}; the export gives {rows[0].shape[-1]} (its --top_k)")


async def answer(call: Call, body: bodies.AnswerBody) -> Answer:
    """Returns each question's answers, with character positions in the context."""
    asked, lone = bodies.listed(body.inputs)
    work = await call.ask(body, "answer", [(one.context, one.question) for one in asked])
    _check_top_k(body.top_k, work.rows("answers"))
    rows = [dict(zip(work.task.outputs, row, strict=True)) for row in work.each(*work.task.outputs)]
    found = [_answers(row, body.top_k) | work.flagged(place) for place, row in enumerate(rows)]
    return found[0] if lone else found


async def question_answering(call: Call, body: bodies.AnswerBody) -> Answer:
    """Returns the best answer, or a list of the best `top_k`."""
    found = await answer(call, body)
    if body.top_k in (None, 1):
        return found
    return [one["answers"] for one in found] if isinstance(found, list) else found["answers"]


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


async def tag(call: Call, body: bodies.TextsBody) -> Answer:
    """Returns each text's words with class and character positions."""
    texts, lone = bodies.listed(body.inputs)
    answers = _words(await call.ask(body, "tag", texts))
    return next(answers) if lone else answers


def _words(work: QueuedRequest) -> Iterator[list[dict]]:
    for number, one in enumerate(work.each("words", "labels", "starts", "ends", "probabilities")):
        words = [
            {"word": _text(word), "label": _text(label), "start": int(start), "end": int(end), "score": float(max(row))}
            for word, label, start, end, row in zip(*one, strict=True)
            if label
        ]
        yield _flagged(work, number, words)


async def token_classification(call: Call, body: bodies.EntitiesBody) -> Answer:
    """Returns each text's words; neighbours of one class are joined unless `aggregation_strategy` is "none"."""
    found = await tag(call, body)
    joins = body.aggregation_strategy != "none"
    ignored = {"O"} if body.ignore_labels is None else set(body.ignore_labels)

    def entities(words: list[dict]) -> list[dict]:
        parts = _joined(words) if joins else [{"entity": word.pop("label"), **word} for word in words]
        return [one for one in parts if one["entity_group" if joins else "entity"] not in ignored]

    return entities(found) if isinstance(body.inputs, str) else map(entities, found)


def _joined(words: list[dict]) -> list[dict]:
    # Joins words of one class as transformers' TokenClassificationPipeline.group_entities does.
    groups: list[tuple[str, list[dict]]] = []
    for word in words:
        label = word["label"]
        name = label[2:] if label[:2] in ("B-", "I-") else label
        if groups and name == groups[-1][0] and not label.startswith("B-"):
            groups[-1][1].append(word)
        else:
            groups.append((name, [word]))
    return [
        {
            "entity_group": name,
            "score": sum(word["score"] for word in group) / len(group),
            "word": " ".join(word["word"] for word in group),
            "start": group[0]["start"],
            "end": group[-1]["end"],
        }
        for name, group in groups
    ]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
