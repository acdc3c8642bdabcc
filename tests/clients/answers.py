"""What must come back of the calls of the table: the same questions, asked by our own client at the model server."""

import numpy as np

from serving.client import Client

TEXTS = ["the cat sat on the mat", "paris is the capital of france", "who ran in the river ?", "café ☕ fine film"]
DOCUMENTS = ["a fine film", "paris is the capital of france", "the dull cat", "the river runs in paris"]
# Of the clients' programs, but for the addresses.
WHERE = {
    "texts": TEXTS,
    "many": [f"the cat {number} sat on mat {number % 7}" for number in range(2048)],
    "query": "what is the capital of france",
    "documents": DOCUMENTS,
    "masked": "the cat sat on the [MASK]",
    "question": "what is the capital of france",
    "context": "paris is the capital of france and the river runs in it",
}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class Answers:
    """The answers by the names of OUTCOMES."""

    def __init__(self, server):
        self._server = server
        self._made = {}

    def __getitem__(self, outcome):
        if outcome not in self._made:
            self._made[outcome] = getattr(self, "_" + outcome.replace(" ", "_"))()
        return self._made[outcome]

    def _asked(self, model, signature="serving_default", **inputs):
        with Client(self._server, model, signature=signature) as client:
            return client.predict({name: np.array(values, object) for name, values in inputs.items()})

    def _embedded(self, texts):
        return self._asked("embedder", text=texts)["embedding"]

    def _vectors(self):
        return self._embedded(TEXTS)

    def _many_vectors(self):
        return self._embedded(WHERE["many"])

    def _one_vector(self):
        return self["vectors"][0]

    def _similarities(self):
        vectors = unit(self["vectors"])
        return vectors[1:] @ vectors[0]

    def _nearest(self):
        texts = unit(self._embedded([WHERE["query"], *DOCUMENTS]))
        return int((texts[1:] @ texts[0]).argmax())

    def _two_of_the_ranking(self):
        with Client(self._server, "pairs") as client:
            scores = client.rerank(WHERE["query"], DOCUMENTS)
        return [[int(place), scores[place]] for place in np.argsort(-scores)[:2]]

    def _classes_of_one(self):
        (row,) = self._asked("classifier", text=TEXTS[:1])["probabilities"]
        names = ["dull", "so so", "fine"]
        return [[names[place], row[place]] for place in np.argsort(-row)]

    def _pieces_for_a_mask(self):
        found = self._asked("words", "fill_mask", text=[WHERE["masked"]])
        return [[piece.decode(), score] for piece, score in zip(found["pieces"][0, 0], found["probabilities"][0, 0])]

    def _entities(self):
        """Words one after the other of one class are one entity, unless a word begins another."""
        found = {name: values[0] for name, values in self._asked("tagger", text=[TEXTS[1]]).items()}
        rows = zip(found["words"], found["labels"], found["probabilities"], found["starts"], found["ends"])
        entities, last = [], None
        for word, label, row, start, end in rows:
            begins, name = label[:2] == b"B-", label[2:].decode()
            if not name:
                last = None
                continue
            if name != last or begins:
                entities.append([[], name, [], start, end])
            last = name
            entities[-1][0].append(word.decode())
            entities[-1][2].append(row.max())
            entities[-1][4] = end
        return [[" ".join(words), name, np.mean(scores), start, end] for words, name, scores, start, end in entities]

    def _an_answer(self):
        found = self._asked("spans", question=[WHERE["question"]], context=[WHERE["context"]])
        first = [found[name][0, 0] for name in ("answers", "starts", "ends", "probabilities")]
        return [first[0].decode(), *first[1:]]

    def _available(self):
        return ["AVAILABLE"]


def same(found, expected, tolerance=2e-5):
    """Whether two answers are equal, numbers up to rounding."""
    if isinstance(expected, str):
        return found == expected
    if isinstance(expected, list | tuple | np.ndarray):
        if not isinstance(found, list) or len(found) != len(expected):
            return False
        if isinstance(expected, np.ndarray) and expected.dtype.kind in "fiu":
            return np.shape(found) == expected.shape and np.abs(np.subtract(found, expected)).max() <= tolerance
        return all(same(one, other, tolerance) for one, other in zip(found, expected))
    return abs(found - expected) <= tolerance
