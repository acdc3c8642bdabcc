"""Rows a second of fine-tuning on rows as long as they are, beside keras-hub and PyTorch, the same batches in turn.

pip install '.[peers]'; python -m benchmarks.finetuning_peers --data_dir=glue/SST-2 --tokenizer=30k-clean.model

ALBERT-base, AdamW, no dropout. All sides get the batches of run_finetuning (rows of like length together, see
`benchmarks.finetuning`) padded for their longest row; keras-hub's also the whole --max_seq_length, which its
preprocessor makes. PyTorch: transformers' model under torch.compile for any length, its fused AdamW, in bfloat16 where
--dtype_policy asks for it. Every batch's shape is met once before anything is timed.
"""

import benchmarks.as_trained  # noqa: F401, I001  (first of all)

import itertools
import json
import statistics
from collections.abc import Callable

import keras
import numpy as np

from albert_tf import AlbertClassifier, AlbertEncoder
from albert_tf.optimizers import create_optimizer
from albert_tf.training.batches import epoch_order, signature, training_batches
from albert_tf.training.devices import Devices
from albert_tf.training.preparation import prepare
from albert_tf.training.steps import Steps
from benchmarks import hub
from benchmarks.finetuning import parser_of, settings_of
from benchmarks.inference import cores, machine
from benchmarks.timing import seconds_in_turns

RATE = 1e-5


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=6, help="of an epoch, evenly by length")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    run = prepare(settings_of(arguments, config=arguments.config, max_seq_length=arguments.max_seq_length))
    batches = sample(run.train, arguments)
    sides = {
        "ours": ours(run, arguments),
        "keras-hub": keras_hub_side(run.config, arguments),
        f"keras-hub, {arguments.max_seq_length} columns": keras_hub_side(run.config, arguments, padded=True),
        "PyTorch": pytorch(run.config, arguments),
    }
    turns = {name: lambda step=step: [step(*batch) for batch in batches] for name, step in sides.items()}
    seconds = seconds_in_turns(turns, arguments.rounds)
    print(json.dumps(machine()))
    tokens = sum(int(features["input_mask"].sum()) for features, _ in batches)
    rows, columns = len(batches) * arguments.batch_size, sum(features["input_ids"].size for features, _ in batches)
    print(
        f"SST-2, {arguments.config}, {arguments.dtype_policy}: {rows} rows of {tokens / rows:.1f} tokens,"
        f" {columns / rows:.1f} columns"
    )
    best = statistics.median(seconds["ours"])
    for name, times in seconds.items():
        median, turns = statistics.median(times), ", ".join(f"{rows / value:.1f}" for value in times)
        print(f"{name:24} {rows / median:8.1f} rows/s (turns: {turns}); ours is {median / best:.2f} times as fast")


def sample(rows, arguments) -> list[tuple[dict, np.ndarray]]:
    """Batches of an epoch that stand for all of it: every so manieth by its length."""
    order = epoch_order(rows.lengths, arguments.batch_size, 0, 0)
    by_length = np.argsort(rows.lengths[order].max(axis=1), kind="stable")
    chosen = set(by_length[np.linspace(0, len(order) - 1, arguments.batches + 2).astype(int)[1:-1]].tolist())
    read = training_batches(rows, arguments.batch_size, arguments.max_seq_length, seed=0)
    picked = (batch for number, batch in enumerate(itertools.islice(read, len(order))) if number in chosen)
    return [keras.tree.map_structure(np.asarray, batch) for batch in picked]


def ours(run, arguments) -> Callable:
    """A step as run_finetuning makes it."""
    import tensorflow as tf

    model = AlbertClassifier(AlbertEncoder(run.config, dtype=arguments.dtype_policy), 2, dropout=0.0)
    model.compile(create_optimizer("adamw", RATE, 10_000, 100), jit_compile=False, **run.task.compile_arguments())
    model.optimizer.build(model.trainable_variables)
    steps = Steps(model, Devices(), jit_compile=False)
    specs = signature(run.train)
    steps.batches(lambda *shares: tf.data.Dataset.from_generator(lambda: iter(()), output_signature=specs), True)
    return lambda *batch: steps.train(keras.tree.map_structure(tf.convert_to_tensor, batch))


def keras_hub_side(config, arguments, padded: bool = False) -> Callable:
    """A step of keras-hub's classifier in Keras's own train_on_batch."""
    import keras_hub

    backbone = hub.backbone(config, dropout=0.0, dtype=arguments.dtype_policy)
    model = keras_hub.models.AlbertTextClassifier(backbone, num_classes=2, dropout=0.0)
    model.compile(keras.optimizers.AdamW(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = {"token_ids": "input_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}

    def step(features: dict, labels: np.ndarray) -> None:
        width = arguments.max_seq_length - features["input_ids"].shape[1] if padded else 0
        model.train_on_batch(
            {theirs: np.pad(features[name], ((0, 0), (0, width))) for theirs, name in names.items()}, labels
        )

    return step


def pytorch(config, arguments) -> Callable:
    """A step of transformers' classifier, compiled."""
    import torch
    import transformers

    torch.set_num_threads(cores())  # TensorFlow takes as many.
    theirs = transformers.AlbertConfig(
        vocab_size=config.vocab_size, embedding_size=config.embedding_size, hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers, num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0, hidden_act="gelu_new", num_labels=2,
    )  # fmt: skip
    model = transformers.AlbertForSequenceClassification(theirs).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    compiled = torch.compile(model, dynamic=True)
    in_bfloat16 = arguments.dtype_policy == "mixed_bfloat16"

    def step(features: dict, labels: np.ndarray) -> None:
        ids, mask, segments = (
            torch.from_numpy(features[name].astype(np.int64)) for name in ("input_ids", "input_mask", "segment_ids")
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            loss = compiled(
                input_ids=ids, attention_mask=mask, token_type_ids=segments, labels=torch.tensor(labels).long()
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
