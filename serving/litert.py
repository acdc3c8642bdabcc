"""Writes a model as one LiteRT (TensorFlow Lite) file.

python -m serving.litert --model=sst2 --output=sst2.tflite
python -m serving.litert --model=sst2 --output=sst2.tflite --max_seq_length=64
"""

import dataclasses
from pathlib import Path

import numpy as np

from albert_tf.choices import ALLOW_PICKLE_HELP
from albert_tf.config import AlbertConfig
from albert_tf.hub import check_model
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

_CHECKED_LENGTH = 32


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
    output, length = Path(settings.output), settings.max_seq_length
    if output.is_dir():
        raise UserError(f"--output={output} is a folder; name a file, such as {output / 'model.tflite'}")
    check_model(settings.model, settings.allow_pickle)
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    from albert_tf.loading import load
    from serving.check import TOLERANCES, compare, expected_answers
    from serving.litert_file import convert, run_file

    files.make_output_dir(output.parent)
    loaded = load(settings.model)
    config = getattr(loaded.model, "encoder", loaded.model).config
    limit = config.max_seq_length
    if length > limit:
        raise UserError(f"--max_seq_length={length} must be from 1 to the {limit} tokens that the model takes, or 0")
    pairs = len(loaded.task.get("inputs", [])) == 2
    inputs = _check_inputs(config, length or min(limit, _CHECKED_LENGTH), pairs)
    with files.replacing(output) as temporary:
        temporary.write_bytes(convert(loaded.model, settings.compute, length or None, pairs))
        tolerance = max(TOLERANCES[settings.compute], TOLERANCES[loaded.model.compute_dtype])
        return compare(expected_answers(loaded.model, inputs), run_file(temporary, inputs), tolerance)


def _check_inputs(config: AlbertConfig, length: int, pairs: bool) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, length), np.int32)
    inputs = {"input_ids": ids, "lengths": np.array([length, (length + 1) // 2], np.int32)}
    return inputs | ({"segment_ids": ids % config.type_vocab_size} if pairs else {})


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
