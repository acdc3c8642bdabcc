"""Writes a model to serve, in a numbered folder: a SavedModel for TensorFlow Serving, or a LiteRT file.

python -m serving.export --model=sst2 --output_dir=models/sst2 --inputs=text
python -m serving.export --model=sst2 --output_dir=models/sst2 --inputs=text --compute=int8 --check
python -m serving.export --model=sst2 --output_dir=models/sst2 --inputs=text --compute=int8 --engine=litert
"""

from pathlib import Path

from albert_tf.loading.hub import check_model
from serving.export_settings import ExportSettings, read_calibration
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.tokenizers.folders.folder_files import check_tokenizer

__all__ = ["ExportSettings", "export"]


def export(settings: ExportSettings) -> Path:
    """Writes a model as the next version of a servable, atomically for a polling server, and returns its folder.

    Raises:
        UserError: A missing head or tokenizer, an impossible length, an existing version, or a failed check.

    >>> import tempfile
    >>> from albert_tf import AlbertClassifier, AlbertConfig
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16)
    >>> folder = tempfile.TemporaryDirectory()
    >>> AlbertClassifier(config, num_classes=2).save(f"{folder.name}/model.keras")
    >>> export(ExportSettings(folder.name, f"{folder.name}/servable", warm_up_lengths="")).name
    '1'
    >>> folder.cleanup()
    """
    check_model(settings.model, settings.allow_pickle)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    if settings.calibration_text:
        read_calibration(settings.calibration_text)
    start_tensorflow()
    from serving.exporting import load_and_write

    return load_and_write(settings)


def main(settings: ExportSettings) -> None:
    """Exports the model."""
    target = export(settings)
    from serving.exporting import say_exported

    say_exported(target)


def run() -> None:
    """Runs the command."""
    run_main(main, ExportSettings)


if __name__ == "__main__":
    run()
