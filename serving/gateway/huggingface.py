"""What Hugging Face's clients ask (huggingface_hub, @huggingface/inference): pipelines, by their names.

A single input is answered as they read it. Options of a pipeline are followed, or refused by name.
"""

import numpy as np

from serving.gateway import bodies, understanding
from serving.gateway.errors import bad_request
from serving.gateway.service import Answer, Call, Service, best_first


async def text_classification(service: Service, body: bodies.ClassesBody, call: Call) -> Answer:
    """Answers of each row the classes, likeliest first; the one row of a single input is in a list, too."""
    model, task = service.model(body.model, "classify")
    rows, _ = bodies.rows_of(body.inputs, len(task.inputs))
    work = await service.answer(model, task, rows, call, body)
    function = body.function_to_apply or ("none" if body.raw_scores else None)
    found = understanding.classes_of(model, work, task.outputs, function)
    return [classes[: body.top_k] for classes in found]


async def token_classification(service: Service, body: bodies.EntitiesBody, call: Call) -> Answer:
    """Answers the words of each text, neighbours of one class together unless the strategy is "none"."""
    found = await understanding.tag(service, body, call)
    joins = body.aggregation_strategy != "none"
    ignored = {"O"} if body.ignore_labels is None else set(body.ignore_labels)

    def entities(words: list[dict]) -> list[dict]:
        parts = _joined(words) if joins else [{"entity": word.pop("label"), **word} for word in words]
        return [one for one in parts if one["entity_group" if joins else "entity"] not in ignored]

    return entities(found) if isinstance(body.inputs, str) else [entities(words) for words in found]


def _joined(words: list[dict]) -> list[dict]:
    """Joins words whose classes are one, as transformers' TokenClassificationPipeline.group_entities does."""
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
    """Whether a label begins something, and the class without B- and I-."""
    return label.startswith("B-"), label[2:] if label[:2] in ("B-", "I-") else label


async def fill_mask(service: Service, body: bodies.MasksBody, call: Call) -> Answer:
    """Answers the likeliest words of a text's mask; of several masks, or of a list of texts, a list of such lists."""
    model, task = service.model(body.model, "fill_mask")
    if "ids" not in task.outputs:
        raise bad_request(
            f"the model '{model.name}' does not give the ids of its words; export it again, or ask /fill_mask"
        )
    texts, lone = bodies.listed(body.inputs)
    work = await service.answer(model, task, [(text,) for text in texts], call, body)
    answers = []
    for text, *row in zip(texts, *(work.rows(name) for name in ("texts", "ids", "probabilities")), strict=True):
        masks = [mask for mask in zip(*row, strict=True) if mask[2].any()]
        if not masks:
            raise bad_request(f"the text '{text[:50]}' has no mask ({model.mask or 'as the vocabulary calls it'})")
        if body.top_k is not None and body.top_k > len(masks[0][0]):
            raise bad_request(f"top_k is {body.top_k}; the export gives {len(masks[0][0])} (--top_k)")
        words = [_words(text, model.mask, place, *mask)[: body.top_k] for place, mask in enumerate(masks)]
        answers.append(words if len(words) > 1 else words[0])
    return answers[0] if lone else answers


def _words(text: str, mask: str, place: int, words: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> list[dict]:
    parts = text.split(mask) if mask else [text]
    before, after = mask.join(parts[: place + 1]), mask.join(parts[place + 1 :])
    found = [(words[one].decode(errors="replace"), ids[one], scores[one]) for one in best_first(scores)]
    return [
        {"score": float(score), "token": int(number), "token_str": word, "sequence": f"{before}{word}{after}"}
        for word, number, score in found
    ]


async def question_answering(service: Service, body: bodies.SpansBody, call: Call) -> Answer:
    """Answers with the best span, or the best `top_k` as a list."""
    model, task = service.model(body.model, "answer")
    given = (model.signatures[task.signature].outputs["answers"].shape or (-1,))[-1]
    if body.top_k is not None and 0 < given < body.top_k:
        raise bad_request(f"top_k is {body.top_k}; the export gives {given} (--top_k)")
    found = await understanding.answer(service, body, call)
    if body.top_k in (None, 1):
        return found
    several = [one["answers"][: body.top_k] for one in (found if isinstance(found, list) else [found])]
    return several if isinstance(found, list) else several[0]
