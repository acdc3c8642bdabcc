"""Tests whether the repeated blocks of a model converge to a fixed point, to a cycle, or to neither.

python -m albert_tf.analysis.equilibrium --model=a.keras --tokenizer=spm.model --text="A sentence." --output_dir=out
python -m albert_tf.analysis.equilibrium --model=a.keras,b.keras --input=text.txt --steps=200 --output_dir=both

The blocks run more often than in training.
"""

import dataclasses

from albert_tf.analysis.layer_distances import ComparedModels, read_texts
from albert_tf.choices import LONGEST_PERIOD
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class EquilibriumSettings(ComparedModels):
    """The command's flags."""

    model: str = setting(help="a checkpoint, or several by commas, in any format that convert_checkpoint reads")
    output_dir: str = setting(help="folder for equilibrium.csv and equilibrium.png")
    text: str = setting("", help="a text to run the blocks on")
    input: str = setting("", help="globs of text files, comma-separated; instead of --text")
    steps: int = setting(100, help="number of times that the repeated blocks run", at_least=4 * LONGEST_PERIOD)
    tolerance: float = setting(1e-3, help="relative residual at which a row has converged", at_least=1e-7)
    documents: int = setting(8, help="documents to read", at_least=1)
    max_seq_length: int = setting(128, help="longest text in tokens; longer ones are cut", at_least=5)


def main(settings: EquilibriumSettings) -> None:
    """Runs every model's blocks on the same texts."""
    if bool(settings.text) == bool(settings.input):
        raise UserError('give either --text="a sentence" or --input=files')
    models = settings.model.split(",")
    settings.check(models)
    texts = [settings.text] if settings.text else read_texts(settings.input, settings.documents)
    output_dir = make_output_dir(settings.output_dir)
    start_tensorflow()
    from albert_tf.analysis.recurrence import compare

    compare(settings, models, texts, output_dir)


def run() -> None:
    """Runs the command."""
    run_main(main, EquilibriumSettings)


if __name__ == "__main__":
    run()
