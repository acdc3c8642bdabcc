"""Measures a pre-trained model on held-out training examples.

python -m albert_tf.run_evaluation --model=run --train_data='data/train-*' --eval_data='data/eval-*'
"""

import dataclasses
from pathlib import Path

from albert_tf.choices import DEPTH_HELP
from albert_tf.model_files import check_model
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_next
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.manifest import read_manifest


@dataclasses.dataclass(frozen=True)
class EvaluationSettings(CheckedSettings):
    """The model and the records of an evaluation."""

    model: str = setting(help="folder that run_pretraining wrote, or a .keras file")
    train_data: str = setting(help="file pattern of training records, for the most frequent answers")
    eval_data: str = setting(help="file pattern of held-out records")
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)
    batch_size: int = setting(64, help="examples a batch", at_least=1)
    max_eval_steps: int = setting(0, help="batches to evaluate, from the first records on; 0 for all", at_least=0)
    output: str = setting("", help="JSON file for the figures")


def main(settings: EvaluationSettings) -> None:
    """Does what the flags ask for."""
    check_model(settings.model)
    for patterns in (settings.train_data, settings.eval_data):
        read_manifest(patterns)
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    from albert_tf.loading import load
    from albert_tf.models.pretrainer import AlbertPretrainer
    from albert_tf.training import evaluation

    loaded = load(settings.model, depth=settings.depth)
    model, tokenizer = loaded.model, loaded.tokenizer
    if not isinstance(model, AlbertPretrainer):
        raise UserError(
            f"'{settings.model}' holds a {type(model).__name__}; only a pre-trained model is evaluated here"
        )
    if settings.output:
        files.make_output_dir(Path(settings.output).parent)
    figures = {
        "model": evaluation.evaluate(
            model, settings.eval_data, settings.batch_size, settings.max_eval_steps, tokenizer
        ),
        "baseline": evaluation.trivial_baselines(
            settings.train_data, settings.eval_data, settings.batch_size, settings.max_eval_steps
        ),
    }
    if settings.output:
        files.write_json(settings.output, figures)
    for name, baseline in figures["baseline"].items():
        # A model of another pair task than the records', or of none, has no answer to theirs.
        value = f"{figures['model'][name]:7.2%}" if name in figures["model"] else "not measured: no task of this model;"
        print(f"{name:25} {value}   trivial baseline {baseline:7.2%}")
    print(f"{'loss':25} {figures['model']['loss']:7.4f}")
    if settings.output:
        print(f"wrote {settings.output}")
    say_next(f"python -m serving.export --model={settings.model} --output_dir=servable")


def run() -> None:
    """Runs the command on the flags of its command line."""
    run_main(main, EvaluationSettings)


if __name__ == "__main__":
    run()
