"""What length buckets save: an epoch of SST-2 at 128 tokens, batches of like length beside fixed columns.

python -m benchmarks.finetuning --data_dir=glue/SST-2 --tokenizer=30k-clean.model

Time (of ALBERT-base): both ways take turns in one process, each on the batches that its epoch holds, and the mean step
is multiplied by the steps of an epoch. Accuracy: a small model is trained from scratch for an epoch, both ways, with
each of --seeds, its whole epoch timed.
"""

import benchmarks.as_trained  # noqa: F401, I001  (first of all)

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder
from albert_tf.model_files import load_task
from albert_tf.optimizers import create_optimizer
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.task import Task
from albert_tf.training.batches import columns, epoch_order, training_batches
from albert_tf.training.finetuning import finetune
from albert_tf.training.preparation import prepare
from benchmarks.inference import machine
from benchmarks.timing import seconds_of

LENGTH, BATCH = 128, 32
SMALL = {
    "embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 256, "max_position_embeddings": LENGTH, "initializer_range": 0.1,
}  # fmt: skip
WAYS = {"buckets": True, "fixed": False}


def parser_of(text: str) -> argparse.ArgumentParser:
    """The arguments of every benchmark of fine-tuning."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--config", default="albert_base_v2")
    parser.add_argument("--dtype_policy", default="float32")
    return parser


def settings_of(arguments, **others) -> FinetuningSettings:
    """Of SST-2 in the folder and by the tokenizer of the arguments."""
    paths = {"data_dir": arguments.data_dir, "tokenizer": arguments.tokenizer, "output_dir": ""}
    return FinetuningSettings(task="sst2", **paths, **others)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=8, help="of a turn with buckets; a quarter with fixed columns")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1, help="of the small model's whole epochs; 0: none")
    arguments = parser.parse_args()
    print(json.dumps(machine()))
    compare_time(arguments)
    if arguments.seeds:
        compare_accuracy(arguments)


def compare_time(arguments) -> None:
    run = prepare(settings_of(arguments, config=arguments.config, max_seq_length=LENGTH))
    rows, steps = run.train, len(run.train) // BATCH
    counts = {name: epoch_columns(rows, bucketed) for name, bucketed in WAYS.items()}
    model = compiled_model(run.config, run.task, arguments.dtype_policy)
    for bucketed in WAYS.values():
        fit(model, rows, 1, 0, bucketed)
    seconds = {name: [] for name in WAYS}
    for turn in range(arguments.turns):
        for name, bucketed in WAYS.items():
            count = arguments.steps if bucketed else max(1, arguments.steps // 4)
            seconds[name].append(fit(model, rows, count, turn * count, bucketed) / count)
    what = f"{arguments.config} {arguments.dtype_policy}"
    print(f"{what}: {steps} steps of {BATCH} rows, {rows.lengths.mean():.1f} tokens each")
    means = {name: statistics.mean(values) for name, values in seconds.items()}
    for name, mean in means.items():
        turns = ", ".join(f"{value:.3f}" for value in seconds[name])
        print(f"{name:8s} {counts[name]:>9,} columns an epoch; {mean:.3f} s a step (turns: {turns})")
        print(f"{'':8s} an epoch would take {mean * steps / 60:.1f} minutes")
    ratio = counts["fixed"] / counts["buckets"]
    print(f"fixed / buckets: columns {ratio:.2f}, time {means['fixed'] / means['buckets']:.2f}")


def epoch_columns(rows: FeatureRows, bucketed: bool) -> int:
    """Columns, padding included, that an epoch computes."""
    batches = rows.lengths[epoch_order(rows.lengths, BATCH, 0, 0, bucketed)]
    return sum(BATCH * (columns(batch, LENGTH) if bucketed else LENGTH) for batch in batches)


def compiled_model(config: AlbertConfig, task: Task, dtype_policy: str) -> AlbertClassifier:
    model = AlbertClassifier(AlbertEncoder(config, dtype=dtype_policy), 2)
    model.compile(create_optimizer("adamw", 1e-5, 20935, 1256), jit_compile=False, **task.compile_arguments())
    return model


def fit(model, rows: FeatureRows, steps: int, first_batch: int, bucketed: bool) -> float:
    """Seconds of some steps, as run_finetuning makes them."""
    batches = training_batches(rows, BATCH, LENGTH, 0, first_batch, bucketed)
    return seconds_of(lambda: model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0))


def compare_accuracy(arguments) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "small.json"
        config.write_text(json.dumps({"vocab_size": 30000} | SMALL))
        settings = settings_of(
            arguments, config=str(config), max_seq_length=LENGTH, train_batch_size=BATCH, num_train_epochs=1.0,
            learning_rate=3e-4,
        )  # fmt: skip
        for name, bucketed in WAYS.items():
            accuracies, seconds = [], []
            for seed in range(arguments.seeds):
                output_dir = str(Path(folder) / f"{name}-{seed}")
                one = dataclasses.replace(settings, length_buckets=bucketed, seed=seed, output_dir=output_dir)
                seconds.append(seconds_of(lambda one=one: finetune(one)))
                accuracies.append(load_task(output_dir)["metrics"]["accuracy"])
            shown = ", ".join(f"{value:.4f}" for value in accuracies)
            print(f"{name:8s} dev accuracy: mean {statistics.mean(accuracies):.4f} of {shown}")
            print(f"{'':8s} {statistics.mean(seconds):.0f} s a run")


if __name__ == "__main__":
    main()
