"""Converts weights between file formats.

python -m albert_tf.convert_checkpoint --input=albert_base --to=keras --output=base.keras
python -m albert_tf.convert_checkpoint --input=run --to=huggingface --output=hf_folder
"""

import dataclasses
from pathlib import Path

from albert_tf.choices import ALLOW_PICKLE_HELP, WRITTEN_FORMATS
from albert_tf.loading.hub import check_model
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_export, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertSettings(CheckedSettings):
    """The command's flags."""

    input: str = setting(help="Folder, checkpoint prefix, file or name.")
    output: str = setting(help="Folder to write, or a .keras file for --to=keras.")
    to: str = setting(help="Format of the output.", choices=WRITTEN_FORMATS)
    max_positions: int = setting(
        0,
        help="Longest row in tokens: learned positions are repeated beyond the last, or cut; 0: unchanged.",
        at_least=0,
    )
    attention_window: int = setting(
        0,
        help="Tokens on each side that a token attends to, for long rows (docs/guide/long_documents.md); 0: all.",
        at_least=0,
    )
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)
    global_attention_every: int = setting(
        0, help="With --attention_window: every this many steps attend to all tokens; 0: none.", at_least=0
    )


def main(settings: ConvertSettings) -> None:
    """Converts a model."""
    if Path(settings.output).resolve() == Path(settings.input).resolve():
        raise UserError(f"--output={settings.output} is --input, whose files would be replaced; choose another")
    check_model(settings.input, settings.allow_pickle)
    start_tensorflow()
    from albert_tf.loading.conversion import convert

    rows = {
        "count": settings.max_positions,
        "attention_window": settings.attention_window,
        "global_attention_every": settings.global_attention_every,
    }
    model = convert(settings.input, settings.output, settings.to, **rows)
    size = f"{type(model).__name__}, {model.count_params():,} parameters"
    print(f"{size}: {settings.input} -> {settings.output} ({settings.to})")
    if settings.to == "keras":
        say_export(settings.output)


def run() -> None:
    """Runs the command."""
    run_main(main, ConvertSettings)


if __name__ == "__main__":
    run()
