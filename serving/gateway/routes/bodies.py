"""Request bodies of OpenAI's, Cohere's and text-embeddings-inference's clients."""

import codecs
from typing import Annotated, Any, Literal

import msgspec

from serving.gateway.errors import Refusal, bad_request
from serving.wire.json_names import repeated_name

Text = str | list[str | int | list[int | str]]
Positive = Annotated[int, msgspec.Meta(ge=1)]
_IDS = (
    "token ids are not taken: those of another vocabulary would give wrong answers without an error; send text "
    "(LangChain's OpenAIEmbeddings: check_embedding_ctx_length=False)"
)


# Client fields that change no answer, such as user names and time limits.
WITHOUT_EFFECT = frozenset(
    {"user", "id", "client_name", "metadata", "options", "priority", "safety_identifier", "store", "timeout"}
)


def decoded(raw: bytes) -> Any:
    """Decodes JSON; raises Refusal for invalid JSON and for duplicate names in an object."""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _other(error) from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    if (name := repeated_name(raw, values)) is not None:
        raise bad_request(f"the body has the field '{name[:50]}' twice in an object; give it once")
    return values


def _other(error: Exception) -> Refusal:
    return bad_request(f"the body is not what this route takes: {error}"[:500])


def read_values(values: Any, kind: type["Body"]) -> Any:
    """Reads a decoded body as `kind`; fields in `parameters` count as fields of the body.

    Raises Refusal for other types, and for an unknown field that may change the answer.
    """
    if isinstance(values, dict):
        if isinstance(values.get("parameters"), dict):
            parameters = values.pop("parameters")
            for name in parameters.keys() & values.keys():
                if parameters[name] != values[name]:
                    raise bad_request(
                        f"the field '{name[:50]}' has another value under 'parameters' than beside it; give it once"
                    )
            values = parameters | values
        if kind is AnyBody:
            return values
        for name in values.keys() - set(kind.__struct_fields__) - WITHOUT_EFFECT:
            if values[name] not in (None, "", [], {}):
                needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
                absent = next((f"it needs '{field}'" for field in needed if field not in values), "leave it out")
                raise bad_request(f"the field '{str(name)[:50]}' is not known at this route; {absent}")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _other(error) from None


class Body(msgspec.Struct, kw_only=True):
    """Base class of bodies. `model`: by default the first that can answer."""

    model: str | None = None

    @property
    def cuts(self) -> bool:
        """Whether too long texts are cut."""
        return True

    def options(self, prompts: tuple[str, ...] | None) -> dict[str, tuple[str, Any]]:
        """Returns the body's (field, value) for each model option (serving.client.tasks.OPTIONS)."""
        return {}


class AnyBody(Body, kw_only=True):
    """A body for any of the model's tasks."""

    inputs: Any = None


class EmbeddingsBody(Body, kw_only=True):
    """OpenAI's embeddings body."""

    input: Text
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None


class Document(msgspec.Struct):
    """A document as an object; its other fields are not read."""

    text: str


class CohereRerankBody(Body, kw_only=True):
    """Cohere's rerank body, of both versions."""

    query: str
    documents: list[str | Document]
    top_n: Positive | None = None
    return_documents: bool | None = None
    rank_fields: list[Literal["text"]] | None = None


class TruncatingBody(Body, kw_only=True):
    """The common fields of text-embeddings-inference's bodies.

    Attributes:
        truncate: False refuses texts that reach the model's maximum length.
        truncation_direction: "left" cuts the beginning.
        prompt_name: names the prompt before each text.
    """

    truncate: bool | None = None
    truncation_direction: Literal["left", "Left", "right", "Right"] | None = None
    prompt_name: str | None = None

    @property
    def cuts(self) -> bool:
        return self.truncate is not False

    def options(self, prompts):
        is_left = (self.truncation_direction or "").lower() == "left"
        return {"truncate_left": ("truncation_direction", is_left), "prompt_name": ("prompt_name", self.prompt_name)}


class EmbedBody(TruncatingBody, kw_only=True):
    """Texts to embed."""

    inputs: Text
    normalize: bool | None = None
    dimensions: Positive | None = None
    encoding_format: Literal["float"] | None = None


class Sentences(msgspec.Struct):
    """A sentence, and others to compare."""

    source_sentence: str
    sentences: Annotated[list[str], msgspec.Meta(min_length=1)]


class SimilarityBody(TruncatingBody, kw_only=True):
    """The body of /similarity."""

    inputs: Sentences


class RerankBody(TruncatingBody, kw_only=True):
    """Texts to rank, or documents in Cohere's form."""

    query: str
    texts: list[str] | None = None
    documents: list[str | Document] | None = None
    raw_scores: bool = False
    return_text: bool = False
    top_n: Positive | None = None
    return_documents: bool | None = None
    rank_fields: list[Literal["text"]] | None = None


class PredictBody(TruncatingBody, kw_only=True):
    """One text (for models of pairs, one pair), or a list.

    Attributes:
        top_k: number of classes to return.
        function_to_apply: replaces the model's activation function; raw_scores means "none".
    """

    inputs: str | list[str | list[str]]
    raw_scores: bool = False
    top_k: Positive | None = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class TextsBody(TruncatingBody, kw_only=True):
    """A text or several."""

    inputs: str | list[str]


class MasksBody(TextsBody, kw_only=True):
    """Texts with masks, and the number of words to return for each."""

    top_k: Positive | None = None


class EntitiesBody(TextsBody, kw_only=True):
    """Texts to tag; neighbouring words of one class may be joined."""

    aggregation_strategy: Literal["none", "first"] | None = None
    ignore_labels: list[str] | None = None


class Question(msgspec.Struct):
    """A question and its context."""

    question: str
    context: str


class AnswerBody(Body, kw_only=True):
    """Questions with contexts, and the number of answers to return."""

    inputs: Question | list[Question]
    top_k: Positive | None = None


# The prompt names of sentence-transformers' encode_query and encode_document; others unchanged.
_PROMPTS = {"search_query": ("query",), "search_document": ("document", "passage", "corpus")}


class CohereEmbedBody(Body, kw_only=True):
    """Cohere's embed body, of both versions.

    Attributes:
        input_type: name of the prompt before each text; if unknown, the default prompt.
        truncate: NONE refuses too long texts; START or END says which end to cut.
    """

    texts: list[str]
    input_type: Literal["search_query", "search_document", "classification", "clustering"] | None = None
    embedding_types: list[Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    output_dimension: Positive | None = None

    @property
    def cuts(self) -> bool:
        return self.truncate != "NONE"

    def options(self, prompts):
        kind = self.input_type or ""
        names = (kind, *_PROMPTS.get(kind, ()))
        prompt = kind if prompts is None else next((name for name in names if name in prompts), "")
        return {"truncate_left": ("truncate", self.truncate == "START"), "prompt_name": ("input_type", prompt)}


class CohereTokensBody(Body, kw_only=True):
    """A text to tokenize."""

    text: str


class TokenizeBody(Body, kw_only=True):
    """Texts to tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True


def texts_of(value: Text, name: str) -> list[str]:
    """Returns one text or several as a list."""
    texts = [value] if isinstance(value, str) else value
    for text in texts:
        if not isinstance(text, str):
            is_nested = isinstance(text, list) and any(isinstance(one, str) for one in text)
            raise bad_request(f"{name}: {'a list within the list; send one list of texts' if is_nested else _IDS}")
    return texts


def listed(value: Any) -> tuple[list, bool]:
    """Returns one input or several as a list, and whether there was only one."""
    return (value, False) if isinstance(value, list) else ([value], True)


def documents_of(body: CohereRerankBody | RerankBody) -> list[str]:
    """Returns documents' texts."""
    return [one.text if isinstance(one, Document) else one for one in body.documents]


def rows_of(value: str | list, width: int) -> tuple[list[tuple[str, ...]], bool]:
    """Returns /predict's rows, and whether the body was one row, not a list."""
    lone = isinstance(value, str) or (width > 1 and bool(value) and all(isinstance(one, str) for one in value))
    rows = [value] if lone else value
    read = [(row,) if isinstance(row, str) else tuple(row) for row in rows]
    for number, row in enumerate(read):
        if len(row) != width:
            wanted = "one text" if width == 1 else "two texts, as a list"
            raise bad_request(f"inputs[{number}] has {len(row)} texts; the model takes {wanted}")
    return read, lone
