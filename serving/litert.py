"""Writes a model as one LiteRT (TensorFlow Lite) file.

python -m serving.litert --model=sst2 --output=sst2.tflite
python -m serving.litert --model=sst2 --output=sst2.tflite --max_seq_length=64
"""

import dataclasses
from pathlib import Path

from albert_tf.choices import ALLOW_PICKLE_HELP
from albert_tf.loading.hub import check_model
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True)
class LiteRtSettings(CheckedSettings):
    """The model to write, and how it computes."""

    model: str = setting(help="folder that training wrote, a .keras file in it, or a published checkpoint")
    output: str = setting(help="file to write, such as model.tflite")
    compute: str = setting(
        "float32", help="int8: 8-bit weights, with activations quantized for each call", choices=("float32", "int8")
    )
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)
    max_seq_length: int = setting(0, help="length of every row in tokens; 0: chosen by each call", at_least=0)


def write(settings: LiteRtSettings) -> dict[str, float]:
    """Writes a file whose answers agree with the Keras model's; returns the largest difference of each output.

    Raises UserError for an impossible setting, an unsupported model, or answers that disagree.
    """
    output = Path(settings.output)
    if output.is_dir():
        raise UserError(f"--output={output} is a folder; name a file, such as {output / 'model.tflite'}")
    check_model(settings.model, settings.allow_pickle)
    start_tensorflow()
    from serving.litert_file import load_and_write

    return load_and_write(settings)


def main(settings: LiteRtSettings) -> None:
    """Runs the command."""
    for name, difference in write(settings).items():
        print(f"check: {name} differs by at most {difference:.2g} from the Keras model")
    print(f"wrote {settings.output} ({Path(settings.output).stat().st_size / 1e6:.1f} MB)")


def run() -> None:
    """Runs the command."""
    run_main(main, LiteRtSettings)


if __name__ == "__main__":
    run()
