"""The data and settings of a fine-tuning run."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.choices import PAIR_LOSSES
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.resolving import resolve_data
from albert_tf.tasks.rows import FeatureRows, chunked, store, weigh
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.task import Hyperparameters, Task
from albert_tf.training.loop.batches import batches_per_epoch
from albert_tf.training.start import Start, check_length, load_start, needed_tokenizer
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

# Share of the training text's tokens that may be unknown to the vocabulary.
_MOST_UNKNOWN = 0.2
# Examples that a dry run reads of each file.
DRYRUN_EXAMPLES = 16
# Examples that are converted to rows at a time; of SQuAD some 100 MB.
CHUNK_EXAMPLES = 4096
# Kinds of tasks whose models can answer after each step: see models/early_exit.py.
EARLY_EXIT_KINDS = ("classification", "regression", "tagging")


class Split(NamedTuple):
    """A split, such as "dev": examples and their features."""

    name: str
    examples: list[Any]
    rows: FeatureRows


class PreparedRun(NamedTuple):
    """The checked inputs of a fine-tuning run.

    Attributes:
        source: the encoder (with `keep_head`, the model) that training starts from, or None.
        unknown_share: share of training tokens outside the vocabulary, 0 to 1.
    """

    settings: FinetuningSettings
    task: Task
    tokenizer: Tokenizer
    config: AlbertConfig
    source: AlbertEncoder | keras.Model | None
    train: FeatureRows
    evaluation: list[Split]
    test: list[Split]
    unknown_share: float

    @property
    def main_metric(self) -> str:
        return f"{self.task.evaluation_splits[0]}_{self.task.main_metric}"


def prepare(settings: FinetuningSettings, task: Task | None = None) -> PreparedRun:
    """Reads and checks all inputs of a run."""
    if task is None:
        settings, _ = resolve_data(settings)
        task = create_task(settings)
    if settings.early_exit and task.kind not in EARLY_EXIT_KINDS:
        raise UserError(f"--early_exit is for {', '.join(EARLY_EXIT_KINDS)}; leave it out for --task={settings.task}")
    training = task.stream("train")
    if training is None:
        raise UserError(
            f"--data_dir={settings.data_dir} holds no training file for --task={settings.task}; "
            "docs/guide/data.md says how each task's files are named"
        )
    examples = {name: task.read(name) for name in (*task.evaluation_splits, *task.test_splits)}
    start = load_start(
        settings.init_from,
        settings.config,
        settings.tokenizer,
        settings.other_tokenizer,
    )
    task = task.begun_from(start.model, start.task)
    config, tokenizer = start.config, needed_tokenizer(start, settings.init_from)
    check_length(settings.max_seq_length, config, settings.init_from, "--max_seq_length")
    settings = _resolve(settings, task.defaults, config.max_seq_length)
    if settings.dryrun:
        kept = max(DRYRUN_EXAMPLES, settings.train_batch_size)
        examples = {name: found and found[:kept] for name, found in examples.items()}
        training = _first(training, kept)
    length = settings.max_seq_length
    chunks = chunked(training, CHUNK_EXAMPLES)
    train = store(_say_what_is_lost(task.rows(chunk, tokenizer, length, training=True) for chunk in chunks))
    splits = {
        name: Split(name, found, task.rows(found, tokenizer, length, training=False))
        for name, found in examples.items()
        if found is not None
    }
    if settings.class_weights:
        train = weigh(train, task.describe()["labels"], settings.class_weights)
    if settings.early_stopping and task.evaluation_splits[0] not in splits:
        fix = "give --dev_fraction=0.1" if settings.data_file else "add one"
        raise UserError(f"--early_stopping needs a {task.evaluation_splits[0]} file to score; {fix} or leave it out")
    share = _unknown_share(train, tokenizer)
    if share > _MOST_UNKNOWN and not settings.other_tokenizer:
        raise UserError(
            f"{share:.0%} of the training text's tokens are unknown to the tokenizer "
            f"({tokenizer.pieces[tokenizer.unk_id]}): it was made for another language or casing; use another model, "
            "or --other_tokenizer to train all the same"
        )
    return PreparedRun(
        _count_steps(settings, task.defaults, train),
        task,
        tokenizer,
        _model_config(settings, start, tokenizer),
        _source(settings, task, start),
        train,
        [splits[name] for name in task.evaluation_splits if name in splits],
        [splits[name] for name in task.test_splits if name in splits],
        share,
    )


def _say_what_is_lost(chunks: Iterable[FeatureRows]) -> Iterator[FeatureRows]:
    lost = 0
    for rows in chunks:
        lost += getattr(rows, "unaligned", 0)
        yield rows
    if lost:
        logging.warning(
            "%d answers of the training file are nothing that the tokenizer keeps, such as a control character; "
            "their questions are trained on as without an answer",
            lost,
        )


def _source(settings: FinetuningSettings, task: Task, start: Start) -> AlbertEncoder | keras.Model | None:
    if start.model is None:
        return None
    if not settings.keep_head:
        return start.model if task.keeps_head else encoder_of(start.model)
    asked, trained = task.describe(), dict(start.task)
    if getattr(start.model, "multi_label", False):
        trained["kind"] = "multilabel"
    elif asked["kind"] == "multilabel":
        trained.setdefault("kind", "one label")
    # Published checkpoints name their labels alone.
    for name in ("kind", "labels") if "kind" in trained or not trained else ("labels",):
        if trained.get(name) != asked[name]:
            raise UserError(
                f"--keep_head needs a model fine-tuned for the {name} {asked[name]}; "
                f"that of --init_from={settings.init_from} has {trained.get(name)}"
            )
    return start.model


def _first(examples: Iterable[Any], count: int) -> list[Any]:
    examples = iter(examples)
    kept = list(itertools.islice(examples, count))
    collections.deque(examples, maxlen=0)
    return kept


def _unknown_share(rows: FeatureRows, tokenizer: Tokenizer) -> float:
    blocks = rows.tokens["input_ids"].blocks()
    counts = sum(np.bincount(block, minlength=tokenizer.vocab_size) for block in blocks)
    counts[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]] = 0
    return float(counts[tokenizer.unk_id] / max(1, counts.sum()))


def digest(rows: FeatureRows) -> str:
    """Returns the SHA-256 of the rows' features and labels."""
    state = hashlib.sha256()
    for name in sorted(rows.tokens):
        for block in rows.tokens[name].blocks():
            state.update(block)
    state.update(rows.lengths.tobytes())
    for name in sorted(rows.values):
        state.update(rows.values[name].tobytes())
    return state.hexdigest()


def _resolve(settings: FinetuningSettings, own: Hyperparameters, positions: int) -> FinetuningSettings:
    changes: dict[str, Any] = {"max_seq_length": settings.max_seq_length or min(own.max_seq_length, positions)}
    for name in ("train_batch_size", "learning_rate"):
        changes[name] = getattr(settings, name) or getattr(own, name)
    if settings.classifier_dropout == -1:
        changes["classifier_dropout"] = own.classifier_dropout
    # The dropouts of --config count.
    if settings.albert_dropout == -1 and not settings.config:
        changes["albert_dropout"] = own.albert_dropout
    if settings.dryrun:
        changes |= {"num_train_steps": 4, "num_train_epochs": 0.0, "num_warmup_steps": 1, "save_checkpoints_steps": 2}
    return dataclasses.replace(settings, **changes)


def _count_steps(settings: FinetuningSettings, own: Hyperparameters, rows: FeatureRows) -> FinetuningSettings:
    compares = bool(settings.loss) and PAIR_LOSSES[settings.loss].compares
    if compares and min(settings.train_batch_size, len(rows)) == 1:
        raise UserError(
            f"--loss={settings.loss} compares the rows of a batch, which is 1 row of {len(rows)} with "
            f"--train_batch_size={settings.train_batch_size}; give 2 or more"
        )
    an_epoch = batches_per_epoch(rows, settings.train_batch_size)
    epochs = settings.num_train_epochs or (0 if settings.num_train_steps else own.num_train_epochs)
    steps = max(1, round(epochs * an_epoch)) if epochs else settings.num_train_steps or own.num_train_steps
    warmup = settings.num_warmup_steps
    if warmup == -1:
        # The official count is of the official number of steps: a shorter run has a shorter warm-up.
        share = own.num_warmup_steps / own.num_train_steps if own.num_train_steps else own.warmup_proportion
        warmup = int(share * steps)
    interval = settings.save_checkpoints_steps or min(1000, max(an_epoch, -(-steps // 20)))
    found = dataclasses.replace(
        settings,
        num_train_steps=steps,
        num_train_epochs=0.0,
        num_warmup_steps=warmup,
        save_checkpoints_steps=min(interval, steps),
    )
    found.check_warmup()
    return found


def _model_config(settings: FinetuningSettings, start: Start, tokenizer: Tokenizer) -> AlbertConfig:
    config = start.config if start.model is not None else start.config.replace(vocab_size=tokenizer.vocab_size)
    rate = settings.albert_dropout
    return config if rate == -1 else config.replace(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
