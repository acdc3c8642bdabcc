"""Fine-tuning from files of examples to a model folder, resumable at the last checkpoint."""

import dataclasses
import secrets
from collections.abc import Iterator
from pathlib import Path

import keras

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.optimizers import create_optimizer
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.task import Task
from albert_tf.training import callbacks, finetuning_callbacks, model_folder, resumable
from albert_tf.training.batches import training_batches
from albert_tf.training.devices import Devices, make_devices
from albert_tf.training.distillation import distil, load_teacher
from albert_tf.training.history import HistoryFile
from albert_tf.training.interrupts import StopSignals
from albert_tf.training.prediction import predict
from albert_tf.training.preparation import Run, Split, digest, prepare
from albert_tf.training.seeds import summarize
from albert_tf.training.start import copy_weights
from tfrecords.base import files
from tfrecords.base.errors import UserError

RUN_FILE = "run.json"


def finetune(settings: FinetuningSettings, task: Task | None = None) -> Path:
    """Trains, from the last checkpoint if there is one, writes the best model's answers, returns the model folder.

    With several seeds each has a folder of its own, `seed-N`; `summary.json` has medians and spread, and the folder
    above holds the best one's model.

    Args:
        task: what to learn; by default the one that `settings.task` names.

    Raises:
        UserError: for data or settings that cannot be trained on, or a folder that holds a run with other settings.
    """
    devices = make_devices(settings.strategy)
    if settings.dryrun:
        _check_claims(dataclasses.replace(settings, dryrun=False), task)
        with files.trial_folder(settings.output_dir, f".dryrun-{secrets.token_hex(4)}") as folder:
            _finetune(dataclasses.replace(settings, output_dir=str(folder)), task, devices)
        print("dry run: everything worked; nothing was kept")
        return Path(settings.output_dir)
    return _finetune(settings, task, devices)


def _finetune(settings: FinetuningSettings, task: Task | None, devices: Devices) -> Path:
    run = prepare(settings, task)
    _check_shares(run, devices)
    output_dir = files.make_output_dir(settings.output_dir)
    folders = _folders(settings)
    for seed, folder in folders.items():
        if len(folders) > 1:
            print(f"seed {seed}:")
        with devices.scope():
            _run(_of_seed(run, seed, folder))
    if len(folders) > 1:
        summarize(output_dir, folders, run.main_metric)
    return output_dir


def _check_shares(run: Run, devices: Devices) -> None:
    size, parts = min(run.settings.train_batch_size, len(run.train)), run.settings.gradient_accumulation_steps
    if size % (parts * devices.replicas):
        raise UserError(
            f"{devices.replicas} devices cannot share a batch of {size} rows in {parts} parts equally; "
            "choose another --train_batch_size"
        )


def _folders(settings: FinetuningSettings) -> dict[int, Path]:
    """Where the run of each seed lies."""
    output_dir, seeds = Path(settings.output_dir), settings.seed_list()
    return {seed: output_dir / f"seed-{seed}" if len(seeds) > 1 else output_dir for seed in seeds}


def _of_seed(run: Run, seed: int, folder: Path) -> Run:
    return run._replace(settings=dataclasses.replace(run.settings, seed=seed, seeds="", output_dir=str(folder)))


def _check_claims(settings: FinetuningSettings, task: Task | None) -> None:
    """Refuses folders whose runs had something else, before anything is written."""
    folders = _folders(settings)
    if any((folder / RUN_FILE).is_file() for folder in folders.values()):
        run = prepare(settings, task)
        for seed, folder in folders.items():
            _claim(_of_seed(run, seed, folder))


def _run(run: Run) -> None:
    settings, output_dir = run.settings, files.make_output_dir(run.output_dir)
    files.write_json(output_dir / RUN_FILE, _claim(run))
    keras.utils.set_random_seed(settings.seed)
    model = resumable.load(output_dir) or _new_model(run)
    # Keras's trainer under JAX computes operation by operation unless asked to compile, also what once was not asked.
    model.jit_compile = settings.jit_compile or keras.backend.backend() == "jax"
    if settings.strategy == "mirrored":
        # Before metrics and losses are built, Keras looks at the mean of the replicas' token ids, which is no id.
        model._symbolic_build(data_batch=run.train.batch([0], settings.max_seq_length))
    step = model.optimizer.updates
    if step < settings.num_train_steps and not _stopped_early(run, step):
        action = "Resuming" if step else "Starting"
        print(
            f"{action} at step {step} of {settings.num_train_steps}: {model.count_params():,} parameters, "
            f"{len(run.train):,} rows, {run.unknown_share:.1%} of the tokens unknown to the vocabulary"
        )
        run.tokenizer.save(output_dir)
        run.config.to_json(output_dir / "config.json")
        if settings.teacher:
            labels, length = run.task.describe()["labels"], settings.max_seq_length
            teacher = load_teacher(settings.teacher, model, run.tokenizer, length, labels)
            distil(model, teacher, settings.distillation_weight, settings.temperature)
        with StopSignals() as signals:
            _fit(run, model, step, signals)
        signals.end()
    else:
        print(f"{output_dir} is trained already ({step} steps)")
    _write_predictions(run)


def _claim(run: Run) -> dict:
    """What decides the run, as its folder is to say; refuses a folder whose run had something else."""
    wanted = dataclasses.asdict(run.settings)
    # Where things lie decides nothing, what is in them does.
    for name in ("output_dir", "data_dir", "tokenizer", "lower_case", "max_unknown_share", "config", "exclude_ids"):
        del wanted[name]
    for name in ("eval_batch_size", "strategy", "seeds", "dryrun"):
        del wanted[name]
    wanted |= {"model": run.config.to_dict(), "tokenizer_sha256": run.tokenizer.sha256}
    wanted |= {"labels": run.task.describe()["labels"], "train_sha256": digest(run.train)}
    path = run.output_dir / RUN_FILE
    if path.is_file():
        found = files.read_json(path)
        # A run of before a setting was there had its default.
        found = {field.name: field.default for field in dataclasses.fields(run.settings)} | found
        different = [key for key in wanted if found.get(key) != wanted[key]]
        if different:
            pairs = ", ".join(f"{key}={found.get(key)!r} (now {wanted[key]!r})" for key in different)
            raise UserError(f"'{run.output_dir}' holds a run with {pairs}; use the same flags or another --output_dir")
    return wanted


def _new_model(run: Run) -> keras.Model:
    settings, parts = run.settings, run.settings.gradient_accumulation_steps
    encoder = AlbertEncoder(run.config, dtype=settings.dtype_policy, seed=settings.seed, pooler=run.task.needs_pooler)
    if run.source is not None:
        copy_weights(run.source, encoder)
    model = run.task.create_model(encoder, settings.classifier_dropout, settings.early_exit)
    optimizer = create_optimizer(
        "adamw",
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
        weight_decay_rate=settings.weight_decay_rate,
        gradient_accumulation_steps=parts if parts > 1 else None,
    )
    model.compile(optimizer=optimizer, **run.task.compile_arguments())
    # Made within the first step, its variables would have TensorFlow trace that twice.
    optimizer.build(model.trainable_variables)
    return model


def _fit(run: Run, model: keras.Model, step: int, signals: StopSignals) -> None:
    settings, parts = run.settings, run.settings.gradient_accumulation_steps
    progress = finetuning_callbacks.Progress(settings.num_train_steps, step, parts)
    watchers = [*_watchers(run, step, progress), finetuning_callbacks.StopWhenAsked(run.output_dir, signals, parts)]
    for first, last, epochs in _stretches(step, settings.save_checkpoints_steps, settings.num_train_steps):
        batches = training_batches(
            run.train,
            settings.train_batch_size,
            settings.max_seq_length,
            settings.seed,
            first_batch=first,
            bucketed=settings.length_buckets,
            parts=parts,
        )
        epoch = first // settings.save_checkpoints_steps
        model.fit(
            batches,
            initial_epoch=epoch,
            epochs=epoch + epochs,
            steps_per_epoch=(last - first) // epochs * parts,
            callbacks=watchers,
            shuffle=False,  # The batches are shuffled already.
            verbose=0,
        )
        if model.stop_training:
            break
    progress.bar.close()


def _stopped_early(run: Run, step: int) -> bool:
    rows = HistoryFile(run.output_dir / "history.csv", step).rows
    return finetuning_callbacks.has_stalled(rows, run.main_metric, run.settings.early_stopping)


def _stretches(step: int, interval: int, total: int) -> Iterator[tuple[int, int, int]]:
    """First step, last step and number of epochs of each `fit`, whose epochs are of one length: up to the next
    checkpoint, whole intervals, and what is left over."""
    aligned = min(-(-step // interval) * interval, total)
    whole = max(aligned, total // interval * interval)
    for first, last in ((step, aligned), (aligned, whole), (whole, total)):
        if first < last:
            yield first, last, max(1, (last - first) // interval)


def _watchers(run: Run, step: int, progress: finetuning_callbacks.Progress) -> list[keras.callbacks.Callback]:
    history = callbacks.History(run.output_dir / "history.csv", first_step=step)

    def describe() -> dict:
        return run.task.describe() | {"max_seq_length": run.settings.max_seq_length}

    return [
        callbacks.StopOnNonFiniteLoss(),
        callbacks.Figures(),
        finetuning_callbacks.Evaluation(lambda model: evaluate(run, model)),
        history,
        finetuning_callbacks.Checkpoints(run.output_dir, history, run.main_metric, describe),
        finetuning_callbacks.StopEarly(history, run.main_metric, run.settings.early_stopping),
        progress,
        keras.callbacks.TensorBoard(run.output_dir / "tensorboard", write_graph=False),
    ]


def evaluate(run: Run, model: keras.Model) -> dict[str, float]:
    """Scores of every evaluation split, each name led by its split's."""
    scores = {}
    for split in run.evaluation:
        found = run.task.score(split.examples, split.rows, _outputs(run, model, split))
        scores |= {f"{split.name}_{name}": value for name, value in found.items()}
    return scores


def _outputs(run: Run, model: keras.Model, split: Split) -> list:
    return predict(model, split.rows, run.settings.eval_batch_size, run.settings.max_seq_length)


def _write_predictions(run: Run) -> None:
    model = model_folder.load_model(run.output_dir / model_folder.MODEL_FILE)
    folder = files.make_output_dir(run.output_dir / "predictions")
    for split in (*run.evaluation, *run.test):
        outputs = _outputs(run, model, split)
        for path in run.task.write_predictions(folder, split.name, split.examples, split.rows, outputs):
            if not run.settings.dryrun:
                print(f"wrote {path}")
