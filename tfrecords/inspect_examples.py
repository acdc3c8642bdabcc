"""Shows training examples as text, and counts a sample or all of them.

python -m tfrecords.inspect_examples --input=data --examples=2
python -m tfrecords.inspect_examples --input=data --sample=0
"""

from dataclasses import dataclass

from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.manifest import SPLITS, find_records


@dataclass(frozen=True)
class InspectSettings(CheckedSettings):
    """Which records to show, and how many."""

    input: str = setting(help="Folder or comma-separated globs of record files.")
    split: str = setting("train", help="Part of a folder's files to read.", choices=SPLITS)
    examples: int = setting(3, help="Examples to print.", at_least=0)
    sample: int = setting(
        10000, help="Number of examples to count; 0 counts all, and checks every file's checksum.", at_least=0
    )


def main(settings: InspectSettings) -> None:
    """Shows examples and counts."""
    paths = find_records(settings.input, settings.split)
    # Imported here: --help and wrong flags need no TensorFlow.
    from tfrecords.inspection import inspect

    inspect(paths, settings.split, settings.examples, settings.sample)


def run() -> None:
    """Runs the command."""
    run_main(main, InspectSettings)


if __name__ == "__main__":
    run()
