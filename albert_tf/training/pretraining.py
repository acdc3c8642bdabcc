"""Pre-training from TFRecords to a model folder, resumable at the last checkpoint."""

import dataclasses
from pathlib import Path

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimizers import OPTIMIZERS, create_optimizer
from albert_tf.training import callbacks, model_folder
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.manifest import find_records, read_manifest
from tfrecords.reader import read_examples
from tfrecords.settings import setting
from tfrecords.tokenizer import load_tokenizer

DTYPE_POLICIES = ("float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """All that determines a run. Steps count optimizer updates; batch sizes count examples.

    Defaults are the paper's, from google-research/albert:run_pretraining.py:68-94.
    """

    config: str = setting(help="a published configuration's name, e.g. albert_base_v2, or an albert_config.json")
    train_data: str = setting(help="file pattern of training records, e.g. 'data/train-*.tfrecord*'")
    output_dir: str = setting(help="folder of the run: checkpoints, history.csv, TensorBoard logs")
    eval_data: str = setting("", help="file pattern of held-out records, evaluated at every checkpoint")
    optimizer: str = setting("lamb", help="lamb or adamw")
    learning_rate: float = setting(0.00176, help="peak of the learning-rate curve")
    poly_power: float = setting(1.0, help="power of the decay after warm-up; 1 is a straight line to zero")
    weight_decay_rate: float = setting(0.01, help="decoupled weight decay; biases and layer norms are excluded")
    train_batch_size: int = setting(4096, help="examples a step")
    eval_batch_size: int = setting(64, help="examples a batch of the evaluation")
    max_eval_steps: int = setting(100, help="batches of an evaluation, from the first records on; 0 for all")
    num_train_steps: int = setting(125_000, help="steps in all; the rate has decayed to zero there")
    num_warmup_steps: int = setting(3_125, help="steps of linear warm-up")
    save_checkpoints_steps: int = setting(5_000, help="steps between checkpoints, each with an evaluation")
    dtype_policy: str = setting("float32", help="float32, or mixed_bfloat16 where the processor computes in bfloat16")
    jit_compile: bool = setting(False, help="compile the step with XLA")
    seed: int = setting(0, help="of the weights, the dropout, the order of examples and dynamic masks")

    def __post_init__(self):
        """Raises UserError naming the first value that no run could have."""
        for name in ("train_batch_size", "eval_batch_size", "num_train_steps", "save_checkpoints_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)} must be 1 or more")
        if not 0 <= self.num_warmup_steps < self.num_train_steps:
            raise UserError(
                f"--num_warmup_steps={self.num_warmup_steps} must be 0 or more and below "
                f"--num_train_steps={self.num_train_steps}"
            )
        for name, choices in (("optimizer", tuple(OPTIMIZERS)), ("dtype_policy", DTYPE_POLICIES)):
            if getattr(self, name) not in choices:
                raise UserError(f"--{name}={getattr(self, name)} is unknown; choose one of {', '.join(choices)}")


def pretrain(settings: PretrainingSettings) -> Path:
    """Trains until `num_train_steps`, from the last checkpoint if there is one, and returns the model folder.

    Raises:
        UserError: for data or settings that cannot be trained on, or a folder that holds a run with other settings.
    """
    manifest = read_manifest(settings.train_data)
    config = _model_config(settings, manifest)
    held_out = None
    if settings.eval_data:
        same = {key: manifest[key] for key in ("tokenizer_sha256", "max_seq_length", "pair_task")}
        held_out = read_examples(settings.eval_data, settings.eval_batch_size, training=False, expected=same)
        held_out = held_out.take(settings.max_eval_steps or -1)
    output_dir = files.make_output_dir(settings.output_dir)
    _claim(output_dir, settings, config, manifest)
    keras.utils.set_random_seed(settings.seed)
    last = output_dir / "last.keras"
    resumed = last.is_file()
    model = model_folder.load_model(last, compile=True) if resumed else _new_model(settings, config, manifest)
    step = int(model.optimizer.iterations)
    if step >= settings.num_train_steps:
        print(f"{output_dir} is trained already ({step} steps)")
        return output_dir
    action = "Resuming" if step else "Starting"
    print(f"{action} at step {step} of {settings.num_train_steps}: {model.count_params():,} parameters")
    load_tokenizer(find_records(settings.train_data, "train")[0].parent).save(output_dir)
    config.to_json(output_dir / "config.json")
    _fit(model, settings, held_out, output_dir, step)
    return output_dir


def _claim(output_dir: Path, settings: PretrainingSettings, config: AlbertConfig, manifest: dict) -> None:
    """Writes what decides the run into its new folder; refuses a folder whose run had something else."""
    wanted = dataclasses.asdict(settings) | {
        "model": config.to_dict(),
        "tokenizer_sha256": manifest["tokenizer_sha256"],
    }
    path = output_dir / "run.json"
    if path.is_file():
        found = files.read_json(path)
        different = [key for key in wanted if key not in ("output_dir",) and found.get(key) != wanted[key]]
        if different:
            pairs = ", ".join(f"{key}={found.get(key)!r} (now {wanted[key]!r})" for key in different)
            raise UserError(f"'{output_dir}' holds a run with {pairs}; use the same flags or another --output_dir")
    files.write_json(path, wanted)


def _model_config(settings: PretrainingSettings, manifest: dict) -> AlbertConfig:
    is_file = settings.config.endswith(".json")
    config = AlbertConfig.from_json(settings.config) if is_file else AlbertConfig.named(settings.config)
    if manifest["max_seq_length"] > config.max_position_embeddings:
        raise UserError(
            f"the records are {manifest['max_seq_length']} tokens long, the model takes at most "
            f"max_position_embeddings={config.max_position_embeddings}; raise it in --config or rebuild the records"
        )
    # The records decide: a head over any other vocabulary could not be trained on them.
    return config.replace(vocab_size=manifest["vocab_size"])


def _new_model(settings: PretrainingSettings, config: AlbertConfig, manifest: dict) -> AlbertPretrainer:
    encoder = AlbertEncoder(config, dtype=settings.dtype_policy, seed=settings.seed)
    # Whatever old pairs the records hold, the label still says whether the segments are in order.
    pair_task = {"none": None, "sop_legacy": "sop"}.get(manifest["pair_task"], manifest["pair_task"])
    model = AlbertPretrainer(encoder, pair_task=pair_task)
    optimizer = create_optimizer(
        settings.optimizer,
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.poly_power,
        weight_decay_rate=settings.weight_decay_rate,
    )
    model.compile(optimizer=optimizer, jit_compile=settings.jit_compile)
    return model


def _fit(model: AlbertPretrainer, settings: PretrainingSettings, held_out, output_dir: Path, step: int) -> None:
    history = callbacks.History(output_dir / "history.csv", first_step=step)
    progress = callbacks.Progress(settings.num_train_steps, step)
    watchers = [
        callbacks.StopOnNonFiniteLoss(),
        history,
        callbacks.Checkpoints(output_dir, history),
        progress,
        # A point a checkpoint: Keras counts batches from 0 again in a resumed run.
        keras.callbacks.TensorBoard(output_dir / "tensorboard", write_graph=False),
    ]
    interval = min(settings.save_checkpoints_steps, settings.num_train_steps)
    whole = settings.num_train_steps // interval
    # The epochs of one `fit` have one length, so what is left over after whole intervals is a second, shorter `fit`.
    for first, last, steps in ((0, whole, interval), (whole, whole + 1, settings.num_train_steps - whole * interval)):
        if steps and step < last * interval:
            first = max(first, step // interval)
            dataset = read_examples(
                settings.train_data,
                settings.train_batch_size,
                training=True,
                seed=settings.seed,
                skip_batches=first * interval,
            )
            model.fit(
                dataset,
                initial_epoch=first,
                epochs=last,
                steps_per_epoch=steps,
                validation_data=held_out,
                callbacks=watchers,
                shuffle=False,  # The reader has shuffled.
                verbose=0,
            )
    progress.bar.close()
