"""Fine-tuning from files of examples to a model folder, resumable at the last checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import keras

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.optimizers import create_optimizer
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.rows import Rows
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.task import Hyperparameters, Task
from albert_tf.training import callbacks, finetuning_callbacks, model_folder
from albert_tf.training.batches import batches_per_epoch, training_batches
from albert_tf.training.prediction import predict
from albert_tf.training.start import copy_weights, find_tokenizer, load_start
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.tokenizer import Tokenizer


class Split(NamedTuple):
    """Examples with their features."""

    name: str
    examples: list[Any]
    rows: Rows


class Run(NamedTuple):
    """A run's settings with every "the task's own" filled in, and what it works on."""

    settings: FinetuningSettings
    task: Task
    tokenizer: Tokenizer
    train: Split
    evaluation: list[Split]
    output_dir: Path


def finetune(settings: FinetuningSettings, task: Task | None = None) -> Path:
    """Trains, from the last checkpoint if there is one, writes predictions of the best model, returns the model folder.

    Args:
        task: what to learn; by default the one that `settings.task` names.

    Raises:
        UserError: for data or settings that cannot be trained on, or a folder that holds a run with other settings.
    """
    task = task or create_task(settings)
    tokenizer = find_tokenizer(settings.tokenizer, settings.init_from)
    train_examples = task.read("train")
    if train_examples is None:
        raise UserError(f"--data_dir={settings.data_dir} holds no training file for task {task.name}")
    config, source = load_start(settings.init_from, settings.config)
    settings = _resolve(settings, task.defaults, config.max_position_embeddings)
    train = _split(task, "train", train_examples, tokenizer, settings.max_seq_length, training=True)
    evaluation = [
        _split(task, name, examples, tokenizer, settings.max_seq_length)
        for name in task.evaluation_splits
        if (examples := task.read(name)) is not None
    ]
    settings = _count_steps(settings, task.defaults, train.rows)
    output_dir = files.make_output_dir(settings.output_dir)
    run = Run(settings, task, tokenizer, train, evaluation, output_dir)
    keras.utils.set_random_seed(settings.seed)
    last = output_dir / "last.keras"
    if last.is_file():
        model = model_folder.load_model(last, compile=True)
    else:
        model = _new_model(run, config, source)
    step = int(model.optimizer.iterations)
    if step < settings.num_train_steps:
        action = "Resuming" if step else "Starting"
        print(f"{action} at step {step} of {settings.num_train_steps}: {model.count_params():,} parameters")
        tokenizer.save(output_dir)
        model.encoder.config.to_json(output_dir / "config.json")
        _fit(run, model, step)
    _write_predictions(run)
    return output_dir


def _resolve(settings: FinetuningSettings, own: Hyperparameters, positions: int) -> FinetuningSettings:
    """Fills in the task's own values."""
    if settings.max_seq_length > positions:
        raise UserError(
            f"--max_seq_length={settings.max_seq_length} is more than the model's max_position_embeddings={positions}"
        )
    changes: dict[str, Any] = {"max_seq_length": settings.max_seq_length or min(own.max_seq_length, positions)}
    for name in ("train_batch_size", "learning_rate"):
        changes[name] = getattr(settings, name) or getattr(own, name)
    for name in ("albert_dropout", "classifier_dropout"):
        changes[name] = getattr(own, name) if getattr(settings, name) == -1 else getattr(settings, name)
    return dataclasses.replace(settings, **changes)


def _count_steps(settings: FinetuningSettings, own: Hyperparameters, rows: Rows) -> FinetuningSettings:
    """Fills in steps, warm-up and the span between checkpoints, which may depend on the number of rows."""
    an_epoch = batches_per_epoch(rows, settings.train_batch_size)
    epochs = settings.num_train_epochs or (0 if settings.num_train_steps else own.num_train_epochs)
    steps = max(1, round(epochs * an_epoch)) if epochs else settings.num_train_steps or own.num_train_steps
    warmup = settings.num_warmup_steps
    if warmup == -1:
        # The official counts, shortened with the training.
        official = own.num_warmup_steps / own.num_train_steps if own.num_train_steps else own.warmup_proportion
        warmup = int(official * steps)
    if warmup >= steps:
        raise UserError(f"--num_warmup_steps={warmup} must be below the {steps} steps of the run")
    interval = settings.save_checkpoints_steps or min(1000, max(an_epoch, -(-steps // 20)))
    return dataclasses.replace(
        settings,
        num_train_steps=steps,
        num_train_epochs=0.0,
        num_warmup_steps=warmup,
        save_checkpoints_steps=min(interval, steps),
    )


def _split(
    task: Task, name: str, examples: list, tokenizer: Tokenizer, max_seq_length: int, training: bool = False
) -> Split:
    return Split(name, examples, task.rows(examples, tokenizer, max_seq_length, training))


def _new_model(run: Run, config, source: AlbertEncoder | None) -> keras.Model:
    settings = run.settings
    rate = settings.albert_dropout
    config = config.replace(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
    if source is None:
        config = config.replace(vocab_size=run.tokenizer.vocab_size)
    elif run.tokenizer.vocab_size > config.vocab_size:
        raise UserError(f"the tokenizer has {run.tokenizer.vocab_size} pieces, the encoder only {config.vocab_size}")
    encoder = AlbertEncoder(config, dtype=settings.dtype_policy, seed=settings.seed)
    if source is not None:
        copy_weights(source, encoder)
    model = run.task.create_model(encoder, settings.classifier_dropout, settings.early_exit)
    optimizer = create_optimizer(
        "adamw",
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
        weight_decay_rate=settings.weight_decay_rate,
    )
    model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **run.task.compile_arguments())
    return model


def _fit(run: Run, model: keras.Model, step: int) -> None:
    settings, output_dir = run.settings, run.output_dir
    history = callbacks.History(output_dir / "history.csv", first_step=step)
    progress = finetuning_callbacks.Progress(settings.num_train_steps, step)
    main_metric = f"{run.task.evaluation_splits[0]}_{run.task.main_metric}"
    description = run.task.describe() | {"max_seq_length": settings.max_seq_length}
    watchers = [
        callbacks.StopOnNonFiniteLoss(),
        finetuning_callbacks.Evaluation(lambda model: evaluate(run, model)),
        history,
        finetuning_callbacks.Checkpoints(output_dir, history, main_metric, description),
        progress,
        keras.callbacks.TensorBoard(output_dir / "tensorboard", write_graph=False),
    ]
    interval = settings.save_checkpoints_steps
    whole = settings.num_train_steps // interval
    # The epochs of one `fit` have one length, so what is left over after whole intervals is a second, shorter `fit`.
    for first, last, steps in ((0, whole, interval), (whole, whole + 1, settings.num_train_steps - whole * interval)):
        if steps and step < last * interval:
            first = max(first, step // interval)
            batches = training_batches(
                run.train.rows,
                settings.train_batch_size,
                settings.max_seq_length,
                settings.seed,
                first_batch=first * interval,
                bucketed=settings.length_buckets,
            )
            model.fit(
                batches,
                initial_epoch=first,
                epochs=last,
                steps_per_epoch=steps,
                callbacks=watchers,
                shuffle=False,  # The batches are shuffled already.
                verbose=0,
            )
    progress.bar.close()


def evaluate(run: Run, model: keras.Model) -> dict[str, float]:
    """Scores of every evaluation split, each name led by its split's."""
    scores = {}
    for split in run.evaluation:
        outputs = predict(model, split.rows, run.settings.eval_batch_size, run.settings.max_seq_length)
        for name, value in run.task.score(split.examples, split.rows, outputs).items():
            scores[f"{split.name}_{name}"] = value
    return scores


def _write_predictions(run: Run) -> None:
    model, settings = model_folder.load_model(run.output_dir / model_folder.MODEL_FILE), run.settings
    test = [
        _split(run.task, name, examples, run.tokenizer, settings.max_seq_length)
        for name in run.task.test_splits
        if (examples := run.task.read(name)) is not None
    ]
    folder = files.make_output_dir(run.output_dir / "predictions")
    for split in (*run.evaluation, *test):
        outputs = predict(model, split.rows, settings.eval_batch_size, settings.max_seq_length)
        for path in run.task.write_predictions(folder, split.name, split.examples, split.rows, outputs):
            print(f"wrote {path}")
