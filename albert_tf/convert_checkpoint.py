"""Converts weights between file formats.

python -m albert_tf.convert_checkpoint --from=official --input=albert_base --to=keras --output=base.keras
python -m albert_tf.convert_checkpoint --input=run --to=huggingface --output=hf_folder
"""

import dataclasses
from pathlib import Path

from albert_tf.choices import FORMATS, WRITTEN_FORMATS
from albert_tf.loading.hub import check_model, find_model, is_preset
from albert_tf.loading.model_files import detect
from albert_tf.trainer_settings import PublishedModel
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_export, start_tensorflow
from tfrecords.base.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertSettings(PublishedModel):
    """The command's flags."""

    input: str = setting(help="Folder, checkpoint prefix, file or name.")
    output: str = setting(help="Folder to write, or a .keras file for --to=keras.")
    to: str = setting(help="Format of the output.", choices=WRITTEN_FORMATS)
    form: str | None = setting(
        None, help="Format of the input; left out: detected from the files.", choices=FORMATS, flag="from"
    )
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
    global_attention_every: int = setting(
        0, help="With --attention_window: every this many steps attend to all tokens; 0: none.", at_least=0
    )


def main(settings: ConvertSettings) -> None:
    """Converts a model."""
    if Path(settings.output).resolve() == Path(settings.input).resolve():
        raise UserError(f"--output={settings.output} is --input, whose files would be replaced; choose another")
    check_model(settings.input, settings.allow_pickle)
    found = "keras_hub" if is_preset(settings.input) else detect(find_model(settings.input))
    if settings.form and settings.form != found:
        raise UserError(
            f"--from={settings.form} is not the format of '{settings.input}'; leave it out, or give {found}"
        )
    start_tensorflow()
    from albert_tf.loading.load import convert

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
