"""The bodies of OpenAI's, Cohere's and text-embeddings-inference's clients; a field that is not known is refused."""

from typing import Annotated, Any, Literal

import msgspec

from serving.gateway.errors import bad_request

Text = str | list[str | int | list[int]]
Positive = Annotated[int, msgspec.Meta(ge=1)]
_IDS = (
    "token ids are not taken: those of another vocabulary would give wrong answers without an error; send text "
    "(LangChain's OpenAIEmbeddings: check_embedding_ctx_length=False)"
)


# Fields of clients that change no answer: who asks, how long to wait, and what is done about a request elsewhere.
WITHOUT_EFFECT = frozenset(
    {"user", "id", "client_name", "metadata", "options", "priority", "safety_identifier", "store", "timeout"}
)


def read_object(raw: bytes, kind: type["Body"]) -> Any:
    """Reads a body.

    Args:
        raw: JSON.
        kind: What it must be.

    Raises:
        msgspec.DecodeError: it is no JSON, or not of this kind.
        Refusal: it has a field that may change the answer and is not known here.
    """
    values = msgspec.json.decode(raw)
    if isinstance(values, dict):
        for name in values.keys() - set(kind.__struct_fields__) - WITHOUT_EFFECT:
            if values[name] not in (None, "", [], {}):
                raise bad_request(f"the field '{str(name)[:50]}' is not known at this route; leave it out")
    return msgspec.convert(values, kind)


class Body(msgspec.Struct, kw_only=True):
    """What every body may say.

    Attributes:
        model: Which model is asked; where nothing is said, the first that can answer.
    """

    model: str | None = None


class EmbeddingsBody(Body, kw_only=True):
    """OpenAI's."""

    input: Text
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None


class CohereRerankBody(Body, kw_only=True):
    """Cohere's, of both versions.

    Attributes:
        max_tokens_per_doc, max_chunks_per_doc: At least the model's longest row, or more than 0 such parts.
    """

    query: str
    documents: list[str | dict[str, Any]]
    top_n: Positive | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None
    max_tokens_per_doc: Positive | None = None
    max_chunks_per_doc: Positive | None = None


class Cut(Body, kw_only=True):
    """What text-embeddings-inference's bodies have in common.

    Attributes:
        truncate: False: a text that fills the model's longest row is an error; else it is cut at its end.
        truncation_direction: Only at the end.
    """

    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None


class EmbedBody(Cut, kw_only=True):
    """Texts to embed."""

    inputs: Text
    normalize: bool = True
    dimensions: Positive | None = None


class RerankBody(Cut, kw_only=True):
    """Texts to put in order."""

    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False


class PredictBody(Cut, kw_only=True):
    """A text, a list of texts, or of models that take pairs a pair or a list of pairs."""

    inputs: str | list[str | list[str]]
    raw_scores: bool = False


class TextsBody(Cut, kw_only=True):
    """A text or several."""

    inputs: str | list[str]


class PairsBody(Cut, kw_only=True):
    """A pair of texts, or a list of pairs."""

    inputs: list[str | list[str]]


class ExitBody(Cut, kw_only=True):
    """Rows as of /predict, and when they may leave."""

    inputs: str | list[str | list[str]]
    threshold: float


class Question(msgspec.Struct):
    """A question, and the text that may hold its answer."""

    question: str
    context: str


class AnswerBody(Body, kw_only=True):
    """A question with its context, or several."""

    inputs: Question | list[Question]


class TokenizeBody(Body, kw_only=True):
    """Texts to cut into pieces."""

    inputs: str | list[str]
    add_special_tokens: bool = True


def texts_of(value: Text, name: str) -> list[str]:
    """Returns one text or several as a list.

    Raises:
        Refusal: for token ids.
    """
    texts = [value] if isinstance(value, str) else value
    for text in texts:
        if not isinstance(text, str):
            raise bad_request(f"{name}: {_IDS}")
    return texts


def listed(value: Any) -> tuple[list, bool]:
    """Returns one input or several as a list, and whether it was only one."""
    return (value, False) if isinstance(value, list) else ([value], True)


def documents_of(body: CohereRerankBody) -> list[str]:
    """Returns the texts of documents, of which version 1 takes objects too.

    Raises:
        Refusal: for objects without a text, or other fields to rank by.
    """
    if body.rank_fields and body.rank_fields != ["text"]:
        raise bad_request("rank_fields: only the field 'text' is read; send the documents as strings")
    texts = [one.get("text") if isinstance(one, dict) else one for one in body.documents]
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise bad_request(f"documents[{number}] has no string 'text'")
    return texts


def rows_of(value: str | list, width: int) -> tuple[list[tuple[str, ...]], bool]:
    """Reads the inputs of /predict.

    Args:
        value: See PredictBody.
        width: The texts that the model takes in a row.

    Returns:
        The rows, and whether it was only one, not in a list.

    Raises:
        Refusal: for rows of another width.
    """
    lone = isinstance(value, str) or (width > 1 and bool(value) and all(isinstance(one, str) for one in value))
    rows = [value] if lone else value
    read = [(row,) if isinstance(row, str) else tuple(row) for row in rows]
    for number, row in enumerate(read):
        if len(row) != width:
            wanted = "one text" if width == 1 else "two texts, as a list"
            raise bad_request(f"inputs[{number}] has {len(row)} texts; the model takes {wanted}")
    return read, lone
