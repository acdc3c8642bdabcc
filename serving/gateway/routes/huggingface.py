"""Pipelines for Hugging Face's clients (huggingface_hub, @huggingface/inference)."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from serving.gateway.errors import bad_request
from serving.gateway.model import Reading
from serving.gateway.routes import bodies, understanding
from serving.gateway.scheduler import QueuedRequest
from serving.gateway.service import Answer, Call, Service, best_first


async def text_classification(service: Service, body: bodies.PredictBody, call: Call) -> Answer:
    """Answers like /predict, but wraps the classes of a single text in a list."""
    found = await understanding.predict(service, body, call)
    return [found] if isinstance(found, list) else found


async def token_classification(service: Service, body: bodies.EntitiesBody, call: Call) -> Answer:
    """Returns each text's words; neighbours of one class are joined unless `aggregation_strategy` is "none"."""
    found = await understanding.tag(service, body, call)
    joins = body.aggregation_strategy != "none"
    ignored = {"O"} if body.ignore_labels is None else set(body.ignore_labels)

    def entities(words: list[dict]) -> list[dict]:
        parts = _joined(words) if joins else [{"entity": word.pop("label"), **word} for word in words]
        return [one for one in parts if one["entity_group" if joins else "entity"] not in ignored]

    return entities(found) if isinstance(body.inputs, str) else map(entities, found)


def _joined(words: list[dict]) -> list[dict]:
    # Joins words of one class as transformers' TokenClassificationPipeline.group_entities does.
    groups: list[list[dict]] = []
    for word in words:
        begins, name = _class(word["label"])
        if groups and name == _class(groups[-1][-1]["label"])[1] and not begins:
            groups[-1].append(word)
        else:
            groups.append([word])
    return [
        {
            "entity_group": _class(group[0]["label"])[1],
            "score": sum(word["score"] for word in group) / len(group),
            "word": " ".join(word["word"] for word in group),
            "start": group[0]["start"],
            "end": group[-1]["end"],
        }
        for group in groups
    ]


def _class(label: str) -> tuple[bool, str]:
    return label.startswith("B-"), label[2:] if label[:2] in ("B-", "I-") else label


async def fill_mask(service: Service, body: bodies.MasksBody, call: Call) -> Answer:
    """Returns the likeliest words for a mask; a list of such lists for several masks or texts."""
    texts, lone = bodies.listed(body.inputs)
    model, work = await understanding.masks(service, texts, body, call)
    if "ids" not in model.tasks["fill_mask"].outputs:
        raise bad_request(f"the model '{model.name}' gives no ids of words; export it again, or ask /fill_mask")
    answers = _filled(model, texts, work, body.top_k)
    return next(answers) if lone else answers


def _filled(model: Reading, texts: list[str], work: QueuedRequest, top_k: int | None) -> Iterator[Iterable]:
    for text, row in zip(texts, work.each("texts", "ids", "probabilities"), strict=True):
        found = [mask for mask in zip(*row, strict=True) if mask[2].any()]
        if not found:
            raise bad_request(f"the text '{text[:50]}' has no mask ({model.mask or 'as the vocabulary calls it'})")
        # As iterators: a text is repeated in each of its sequences, which may together be large.
        words = (islice(_words(text, model.mask, place, *mask), top_k) for place, mask in enumerate(found))
        yield words if len(found) > 1 else next(words)


def _words(text: str, mask: str, place: int, words: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> Iterator[dict]:
    parts = text.split(mask) if mask else [text]
    before, after = mask.join(parts[: place + 1]), mask.join(parts[place + 1 :])

    def sequence(word: str) -> str:
        # A piece of WordPiece that goes on, or one of byte-level BPE that has its blank.
        return f"{before if word[:2] != '##' and word[:1] != ' ' else before.rstrip()}{word.removeprefix('##')}{after}"

    for one in best_first(scores):
        word = words[one].decode(errors="replace")
        yield {"score": float(scores[one]), "token": int(ids[one]), "token_str": word, "sequence": sequence(word)}


async def question_answering(service: Service, body: bodies.AnswerBody, call: Call) -> Answer:
    """Returns the best answer, or a list of the best `top_k`."""
    found = await understanding.answer(service, body, call)
    if body.top_k in (None, 1):
        return found
    return [one["answers"] for one in found] if isinstance(found, list) else found["answers"]
