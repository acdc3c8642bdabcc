"""The methods that a model in memory and a LiteRT version have in common; what callers send, and how much is cut."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from tfrecords.answers.numbers import similarity, unit
from tfrecords.base.columns import is_one, items, strings
from tfrecords.base.errors import UserError, check_counts, check_truths


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Counts examples, tokens, and how many of each were truncated."""

    texts: int = 0
    truncated_texts: int = 0
    tokens: int = 0
    truncated_tokens: int = 0

    @classmethod
    def of(cls, tokens: np.ndarray, kept: np.ndarray) -> "Truncation":
        lost = np.asarray(tokens) - np.asarray(kept)
        return cls(len(lost), int(np.count_nonzero(lost)), int(np.sum(tokens)), int(lost.sum()))

    def __add__(self, other: "Truncation") -> "Truncation":
        return Truncation(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def shares(self) -> dict[str, float]:
        return {
            "truncated_texts": self.truncated_texts / max(self.texts, 1),
            "truncated_tokens": self.truncated_tokens / max(self.tokens, 1),
        }

    def __str__(self) -> str:
        texts, tokens = self.shares().values()
        return f"{texts:.2%} of {self.texts:,} texts ({tokens:.2%} of their tokens)"


def truncation_line(splits: Mapping[str, Truncation]) -> str:
    """Returns one line of text on the truncation of all splits."""
    return "truncated: " + ", ".join(f"{name} {lost}" for name, lost in splits.items())


# The names of prompts that sentence-transformers' encode_query and encode_document look for, in turn.
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


class TextModel(abc.ABC):
    """Answers texts; `task` has what fine-tuning or a published checkpoint says of the model, such as its prompts."""

    task: Any
    source: str

    @property
    @abc.abstractmethod
    def dimensions(self) -> int:
        """The numbers of a vector; raises UserError if the model makes none."""

    @abc.abstractmethod
    def identity(self) -> str:
        """Returns a SHA-256 of all that determines a model's vectors."""

    @abc.abstractmethod
    def answers(self, texts: Any, seconds: Any, batch_size: int) -> Any:
        """Implements `predict` for columns of texts."""

    @abc.abstractmethod
    def vectors(self, texts: Any, batch_size: int, show_progress: bool, prompt_name: str) -> np.ndarray:
        """Implements `encode` for a column of texts, without `normalize`."""

    def predict(self, texts: Any, seconds: Any = None, batch_size: int = 32) -> Any:
        """Returns a prediction for each text, or for one string, in the form that `tfrecords.answers.numbers` lists.

        Args:
            texts: one string, or a list, array, pandas Series or pyarrow column of strings. A tagger takes lists of
                words, or texts that it splits at spaces; a span predictor takes questions.
            seconds: the second texts of pairs; for a span predictor the contexts.
            batch_size: rows that the model sees at a time.

        Raises:
            UserError: there is no tokenizer, or texts have another form than in training.
        """
        if not is_one(texts) and not is_one(seconds):
            return self.answers(texts, seconds, batch_size)
        if not is_one(texts) or not (seconds is None or is_one(seconds)):
            raise UserError("of texts and seconds one is a string and the other is not; give two strings, or two lists")
        return self.answers([texts], None if seconds is None else [seconds], batch_size)[0]

    def encode(
        self,
        texts: Any,
        normalize: bool = True,
        batch_size: int = 32,
        show_progress: bool = False,
        prompt_name: str = "",
    ) -> np.ndarray:
        """Returns a vector for each text; for an encoder, the mean of the last hidden states.

        `texts` are strings, as in `predict`. `normalize` scales vectors to length 1. `prompt_name` selects the
        model's prompt that precedes each text; empty: the default.

        Returns:
            float32 [texts, dimensions]; for one string [dimensions].

        Raises:
            UserError: there is no tokenizer, the model makes no vectors, or `texts` are not strings.
        """
        check_truths(normalize=normalize, show_progress=show_progress)
        listed = [texts] if is_one(texts) else texts
        vectors = self.vectors(listed, batch_size, show_progress, prompt_name)
        if normalize:
            vectors = unit(vectors)
        return vectors[0] if is_one(texts) else vectors

    def encode_query(self, texts: Any, **options: Any) -> np.ndarray:
        """Calls `encode` with the model's prompt for queries."""
        return self.encode(texts, prompt_name=prompt_name_of(self.task.get("prompts", {}), "query"), **options)

    def encode_document(self, texts: Any, **options: Any) -> np.ndarray:
        """Calls `encode` with the model's prompt for documents."""
        return self.encode(texts, prompt_name=prompt_name_of(self.task.get("prompts", {}), "document"), **options)

    def similarity(self, first: Any, second: Any, batch_size: int = 32) -> Any:
        """Compares texts or vectors by cosine, or by the measure that the model's files name.

        `first` and `second` are strings, as in `predict`, or vectors, [n, dimensions] and [m, dimensions].

        Returns:
            float32 [n, m]; for two single texts or vectors, one float.
        """
        sides = [self._as_vectors(side, batch_size) for side in (first, second)]
        scores = similarity(self.task.get("similarity_fn_name", "cosine"), *(np.atleast_2d(side) for side in sides))
        return float(scores[0, 0]) if all(side.ndim == 1 for side in sides) else scores

    def _as_vectors(self, side: Any, batch_size: int) -> np.ndarray:
        is_numeric = hasattr(side, "dtype") and getattr(side.dtype, "kind", "") == "f"
        return np.asarray(side, "float32") if is_numeric else self.encode(side, False, batch_size)


def default_prompt(task: Mapping[str, Any]) -> str:
    """Returns the prompt that precedes every text; "" for none."""
    return task.get("prompts", {}).get(task.get("default_prompt_name"), "")


def prompt_name_of(prompts: Mapping[str, str], role: str) -> str:
    """Returns the name of the prompt for `role`, "query" or "document"; "" for none."""
    return next((name for name in _PROMPT_NAMES[role] if name in prompts), "")


def prompt_of(task: Mapping[str, Any], prompt_name: str) -> str:
    """Returns the prompt of that name, or the default one; raises UserError if the model has none of that name."""
    prompts = task.get("prompts", {})
    if prompt_name and prompt_name not in prompts:
        known = ", ".join(prompts) or "none"
        raise UserError(f"prompt_name '{prompt_name}' is no prompt of the model; it has {known}")
    return prompts[prompt_name] if prompt_name else default_prompt(task)


def columns_of(texts: Any, seconds: Any) -> list[list[str]]:
    """Converts one or two columns of texts as `strings` does; raises UserError if their lengths differ."""
    if seconds is None:
        return [strings(texts, "texts")]
    columns = [strings(texts, "texts"), strings(seconds, "seconds")]
    if len(columns[0]) != len(columns[1]):
        raise UserError(f"{len(columns[0])} texts but {len(columns[1])} second ones; give each a partner")
    return columns


def check_pairs(inputs: Sequence[str] | None, seconds: Any) -> None:
    """Raises UserError if texts come in pairs, but in fine-tuning did not, or the other way; `inputs`: names there."""
    if inputs is not None and (len(inputs) == 2) != (seconds is not None):
        expected = "pairs: predict(firsts, seconds)" if len(inputs) == 2 else "single texts: predict(texts)"
        raise UserError(f"the model was trained on {expected}, with {', '.join(inputs)}")


def refuse_seconds(seconds: Any) -> None:
    """Raises UserError if there are second texts."""
    if seconds is not None:
        raise UserError("the model takes single texts; leave out seconds")


def questions_of(questions: Any, contexts: Any) -> list[tuple[str, str]]:
    """Returns pairs of question and context."""
    if contexts is None:
        raise UserError("spans are found in contexts; call predict(questions, contexts)")
    return list(zip(*columns_of(questions, contexts)))


def words_of(texts: Any) -> list[list[str]]:
    """Returns the words of each text; raises UserError if one has none."""
    listed = items(texts, "texts")
    words = [strings(text.split() if isinstance(text, str) else text, f"texts[{i}]") for i, text in enumerate(listed)]
    if not all(words):
        raise UserError("a text has no words to tag; leave it out")
    return words


def check_asked(batch_size: Any, truncation: Truncation, max_seq_length: int) -> None:
    """Raises UserError for an impossible batch size, and warns if texts are cut."""
    check_counts(batch_size=batch_size)
    if truncation.truncated_texts:
        logging.warning("truncated to rows of %d tokens: %s", max_seq_length, truncation)


# For models without answers to texts.
def no_texts(model: str) -> UserError:
    """Returns the error for a model whose answers are not about texts."""
    return UserError(f"predict takes no texts for an {model}; call its model with features, or run_evaluation")


def no_vectors(model: str) -> UserError:
    """Returns the error for a model that makes no vectors."""
    return UserError(f"an {model} makes no vectors; call predict, or load an encoder or embedder")


def no_mask(text: str, mask: str, max_seq_length: int) -> UserError:
    """Returns the error for a text without a masked word."""
    return UserError(f"{text[:60]!r} has no {mask} in its first {max_seq_length} tokens; put one where a word goes")


def no_tokenizer() -> UserError:
    """Returns the error for a model that has no tokenizer."""
    return UserError("there is no tokenizer next to the model; give it: load(..., tokenizer='folder')")
