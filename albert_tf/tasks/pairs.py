import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.load import load
from albert_tf.loading.preprocessing import Preprocessor
from albert_tf.models.pair_losses import PairLoss
from albert_tf.models.pair_trainer import DOCUMENT, TARGETS, PairTrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.tasks.metrics import of_ranks, spearman
from albert_tf.tasks.prediction import padding
from albert_tf.tasks.rows import FeatureRows, side_by_side, text_rows
from albert_tf.tasks.settings import ROLES, FinetuningSettings
from albert_tf.tasks.tables.pair_file import PairData, PairExample, keys_of, open_pairs
from albert_tf.tasks.task import Hyperparameters, StreamedTask
from albert_tf.training.loop.batches import batches_per_epoch, epoch_order
from tfrecords.answers.numbers import unit
from tfrecords.answers.texts import prompt_name_of
from tfrecords.base.columns import items, strings
from tfrecords.base.errors import UserError
from tfrecords.base.tables import write_table
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albert_tf.loaded import Loaded

# Ours: sentence-transformers' rate, epochs and warm-up, with twice its batch, since a larger one has more negatives.
DEFAULTS = Hyperparameters(2e-5, 32, num_train_epochs=1.0, warmup_proportion=0.1, classifier_dropout=-1.0)
# Scores that are in memory at a time: 64 MB.
_BLOCK = 2**24


def pair_rows(
    tokenizer: Tokenizer, texts: Sequence[Sequence[str]], max_seq_length: int, prompts: tuple[str, str] = ("", "")
) -> FeatureRows:
    """Tokenizes each anchor with its documents into a row; the documents' features have the prefix `document_`.

    `texts` are the columns: anchors, positives, negatives.
    """
    prompt_of_column = itertools.chain(prompts[:1], itertools.repeat(prompts[1]))
    anchors, *documents = ([prompt + text for text in column] for prompt, column in zip(prompt_of_column, texts))
    rows = text_rows(tokenizer, [anchors], max_seq_length)
    if not documents:
        return rows
    columns = [text_rows(tokenizer, [column], max_seq_length) for column in documents]
    tokens = dict(rows.tokens) | {
        DOCUMENT + name: side_by_side([column.tokens[name] for column in columns], rows.pad_id * (name == "input_ids"))
        for name in rows.tokens
    }
    truncation = sum((column.truncation for column in columns), rows.truncation)
    return dataclasses.replace(rows, tokens=tokens, truncation=truncation)


class TextPairs(keras.utils.PyDataset):
    """Batches of text pairs for `fit` of a PairTrainer; each epoch has another order.

    Without `targets`, no batch has a text twice, since it would be a wrong negative.

    Args:
        preprocessor: the model's, from `loaded.preprocessor()`.
        anchors: strings, such as queries.
        positives: for each anchor, a string that matches it or is scored by `targets`.
        negatives: lists; each has one non-matching string per anchor.
        targets: numbers for each row: scores, margins, or a teacher's concatenated vectors.
        prompts: the texts to put before anchors and before all other strings.

    Raises:
        UserError: columns of unequal length, texts that are not strings, or too few different texts for a batch.

    Example:
        >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
        >>> pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film is it".replace(" ", "\\n")
        >>> preprocessor = Preprocessor(WordPieceTokenizer(pieces.encode()), max_seq_length=8)
        >>> pairs = TextPairs(preprocessor, ["is it good", "a film", "it"], ["good", "film", "good"], batch_size=2)
        >>> len(pairs), pairs[0][0]["document_input_ids"].shape[:2]
        (1, (2, 1))
    """

    def __init__(
        self,
        preprocessor: Preprocessor,
        anchors: Any,
        positives: Any = None,
        negatives: Sequence[Any] = (),
        targets: Any = None,
        batch_size: int = 32,
        prompts: tuple[str, str] = ("", ""),
        seed: int = 0,
    ):
        super().__init__()
        given = {"anchors": anchors, "positives": positives}
        given |= {f"negatives[{number}]": column for number, column in enumerate(negatives)}
        texts = [strings(column, name) for name, column in given.items() if column is not None]
        if len({len(column) for column in texts}) > 1 or not texts[0]:
            raise UserError(
                f"columns of {', '.join(str(len(one)) for one in texts)} texts; give equally many, at least 1"
            )
        self.max_seq_length, self.batch_size, self.seed = preprocessor.max_seq_length, batch_size, seed
        rows = pair_rows(preprocessor.tokenizer, texts, self.max_seq_length, prompts)
        values = {} if targets is None else {TARGETS: _numbers(targets, len(texts[0]))}
        keys = keys_of([PairExample(row) for row in zip(*texts)]) if targets is None else None
        self.rows = dataclasses.replace(rows, values=values, keys=keys)
        batches_per_epoch(self.rows, self.batch_size)
        self._padded = padding(self.rows, self.max_seq_length)
        self.epoch = -1
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        self.epoch += 1
        self._batches = epoch_order(self.rows.sizes, self.batch_size, self.seed, self.epoch, self.rows.keys)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple:
        batch = self._batches[index]
        return self.rows.batch(batch, self._padded(batch))


def _numbers(targets: Any, count: int) -> np.ndarray:
    try:
        # A table has a column for each number of a row.
        found = np.asarray(targets if hasattr(targets, "columns") else items(targets, "targets", "numbers"), "float32")
    except (TypeError, ValueError) as error:
        raise UserError(f"targets are not numbers for each row: {error}") from error
    if len(found) != count:
        raise UserError(f"{len(found)} targets for {count} rows of texts; give each row its own")
    return found.reshape(count, -1)


@dataclasses.dataclass(frozen=True)
class PairsTask(StreamedTask):
    """Training of an embedder on a table of pairs; the model's prompts replace those that `given_prompts` lacks."""

    data: PairData
    loss: PairLoss
    given_prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    teacher: "Loaded | None" = None
    head: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    defaults: Hyperparameters = DEFAULTS

    name = kind = "pairs"
    inputs = ("text",)
    labels = None
    needs_pooler = False
    keeps_head = True

    @property
    def main_metric(self) -> str:
        if self.data.score and self.loss.name == "cosent":
            return "spearman"
        return "cosine" if self.loss.name == "mse" else "mrr"

    def begun_from(self, model: Any, task: Mapping[str, Any]) -> "PairsTask":
        head: dict[str, Any] = {}
        if isinstance(model, AlbertSentenceEmbedder):
            config = model.get_config()
            head = {
                name: config[name] for name in ("pooling", "normalize", "projections", "truncate_dim") if name in config
            }
        kept = {name: task[name] for name in ("default_prompt_name", "similarity_fn_name") if name in task}
        if self.teacher is not None and self.loss.name == "mse":
            head = self._towards(self.teacher.embedder, head, getattr(model, "encoder", model))
            # It may ask an index of the teacher's vectors, so that it compares as the teacher does.
            kept["similarity_fn_name"] = self.teacher.task.get("similarity_fn_name", "cosine")
            kept["distilled_from"] = self.teacher.identity()
        if self.loss.name == "margin_mse" and self.teacher is None and head.get("normalize", True):
            self._check_margins()
        prompts = dict(task.get("prompts", {}))
        for role, given in self.given_prompts.items():
            name = prompt_name_of(prompts, role) or role
            own = prompts.get(name, prompts.get(task.get("default_prompt_name", ""), ""))
            if given != own:
                prompts[name] = given
        defaults = dataclasses.replace(DEFAULTS, max_seq_length=task.get("max_seq_length", DEFAULTS.max_seq_length))
        return dataclasses.replace(self, head=head, prompts=prompts, kept=kept, defaults=defaults)

    def _check_margins(self) -> None:
        if farthest := next((margin for margin in self.data.scores if abs(margin) > 2), 0.0):
            raise UserError(
                f"the column '{self.data.score}' has a margin of {farthest:g}, but those of the model's vectors, which "
                "have length 1, are from -2 to 2; scale the column"
            )

    def _towards(self, teacher: AlbertSentenceEmbedder, head: dict[str, Any], encoder: Any) -> dict[str, Any]:
        layers = list(head.get("projections", ()))
        width = (
            layers[-1]["units"] if layers else encoder.config.hidden_size * len(head.get("pooling", "mean").split("+"))
        )
        if width != teacher.dimensions:
            layers.append({"units": teacher.dimensions, "activation": "linear", "use_bias": True})
        return head | {"projections": layers, "normalize": teacher.normalize}

    def stream(self, split: str) -> Iterator[PairExample] | None:
        return self.data.examples(split)

    def rows(
        self, examples: Sequence[PairExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> FeatureRows:
        columns = list(zip(*(example.texts for example in examples)))
        names = [prompt_name_of(self.prompts, role) or self.kept.get("default_prompt_name") for role in ROLES]
        prompts = tuple(self.prompts.get(name, "") for name in names)
        rows = pair_rows(tokenizer, columns, max_seq_length, prompts)
        if not training and self.loss.name != "mse":
            return rows
        targets = self._targets(examples)
        keys = keys_of(examples) if self.loss.name == "multiple_negatives_ranking" else None
        return dataclasses.replace(rows, values={} if targets is None else {TARGETS: targets}, keys=keys)

    def _targets(self, examples: Sequence[PairExample]) -> np.ndarray | None:
        if self.teacher is None:
            return np.array([[example.score] for example in examples], np.float32) if self.data.score else None
        vectors = self._taught(examples)
        if self.loss.name == "mse":
            return vectors.reshape(len(examples), -1)
        products = np.einsum("nd,nkd->nk", vectors[:, 0], vectors[:, 1:])
        return products[:, :1] - products[:, 1:]

    def _taught(self, examples: Sequence[PairExample]) -> np.ndarray:
        assert self.teacher is not None
        anchors, *others = zip(*(example.texts for example in examples))
        documents = [_encoded(self.teacher.encode_document, column) for column in others]
        return np.stack([_encoded(self.teacher.encode_query, anchors), *documents], axis=1)

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        return PairTrainer(AlbertSentenceEmbedder(encoder, **self.head), self.loss)

    def saved(self, model: keras.Model) -> keras.Model:
        return model.model

    def answering(self, model: keras.Model) -> keras.Model:
        return PairTrainer(model, dataclasses.replace(self.loss, dims=()))

    def score(self, examples: Sequence[PairExample], rows: FeatureRows, outputs: Sequence[Any]) -> dict[str, float]:
        vectors = unit(np.asarray(outputs, np.float32))
        if self.main_metric == "spearman":
            return {"spearman": spearman(_cosines(vectors), np.array([example.score for example in examples]))}
        if self.main_metric == "cosine":
            return {
                "cosine": float(np.mean(np.sum(vectors * unit(rows.values[TARGETS].reshape(vectors.shape)), axis=-1)))
            }
        return of_ranks(ranks_of(vectors, keys_of(examples)))

    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[PairExample], rows: FeatureRows, outputs: Sequence[Any]
    ) -> list[Path]:
        vectors = unit(np.asarray(outputs, np.float32))
        if vectors.shape[1] == 1:
            return []
        products = np.einsum("nd,nkd->nk", vectors[:, 0], vectors[:, 1:])
        header = ["line", *(f"cosine:{name}" for name in self.data.columns[1:]), *["score"] * bool(self.data.score)]
        lines = [
            [example.index, *(f"{value:.9g}" for value in (*found, *[example.score] * bool(self.data.score)))]
            for example, found in zip(examples, products)
        ]
        return [write_table(folder / f"{split}.tsv", header, lines)]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"prompts": dict(self.prompts)} | dict(self.kept)


def pairs_task(settings: FinetuningSettings) -> PairsTask:
    """Makes the task of --task=pairs."""
    data = open_pairs(settings)
    dims = tuple(int(width) for width in settings.matryoshka_dims.split(",") if width)
    loss = PairLoss(data.loss, settings.temperature, dims=dims)
    teacher = load(settings.teacher) if settings.teacher else None
    return PairsTask(data, loss, settings.prompts, teacher)


def _encoded(encode: Callable[..., np.ndarray], texts: Sequence[str]) -> np.ndarray:
    different = list(dict.fromkeys(texts))
    places = {text: number for number, text in enumerate(different)}
    return encode(different, normalize=False, show_progress=True)[[places[text] for text in texts]]


def ranks_of(vectors: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the rank of each anchor's positive among the documents of all rows, from 1.

    `vectors` are [rows, texts, dimensions]; `keys` come from `keys_of`.
    """
    # Each different text counts once.
    names, first = np.unique(keys[:, 1:], return_index=True)
    documents = vectors[:, 1:].reshape(-1, vectors.shape[-1])[first]
    own, ranks = _cosines(vectors), list[np.ndarray]()
    places, belongs = np.searchsorted(names, keys[:, 1]), dict[int, list[int]]()
    for anchor, place in zip(keys[:, 0].tolist(), places.tolist()):
        belongs.setdefault(anchor, []).append(place)
    size = max(1, _BLOCK // len(documents))
    for start in range(0, len(vectors), size):
        block = slice(start, start + size)
        # Ties count as better than the positive, so that a model with constant vectors gets the worst rank.
        better = vectors[block, 0] @ documents.T > own[block, None] - 1e-6
        for row, anchor in enumerate(keys[block, 0].tolist()):
            # A positive of the same anchor in another row is no worse answer.
            better[row, belongs[anchor]] = False
        ranks.append(1 + better.sum(axis=1))
    return np.concatenate(ranks)


def _cosines(vectors: np.ndarray) -> np.ndarray:
    return np.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
