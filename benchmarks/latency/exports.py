"""The models of the report: published sizes with random weights, which cost what trained ones cost."""

from pathlib import Path

import keras

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder
from albert_tf.checkpoints.formats import save_keras
from albert_tf.model_files import MODEL_FILE
from benchmarks.latency.page import FAST, INT8, PLAIN
from serving.export import ExportSettings, export

# How each model is exported. "plain" is float32 with every padded position computed.
VARIANTS = {
    PLAIN: {"compute": "float32", "padding": "computed"},
    FAST: {"compute": "auto", "padding": "skipped"},
    INT8: {"compute": "int8", "padding": "skipped"},
}


def make_model(name: str, folder: Path) -> Path:
    """A folder with a two-class classifier of the published configuration `name`."""
    if not (folder / MODEL_FILE).is_file():
        keras.utils.set_random_seed(0)
        folder.mkdir(parents=True, exist_ok=True)
        config = AlbertConfig.named(name)
        save_keras(AlbertClassifier(AlbertEncoder(config), num_classes=2), folder / MODEL_FILE)
        config.to_json(folder / "config.json")
        keras.utils.clear_session()
    return folder


def export_model(model: Path, variant: str, base: Path) -> Path:
    """The version folder of the export, written into `base`."""
    return export(ExportSettings(model=str(model), output_dir=str(base), version=1, **VARIANTS[variant]))
