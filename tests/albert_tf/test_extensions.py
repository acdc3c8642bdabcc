"""Extensions plug into a core that does not know them."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.config.registry import REGISTRY, default_of, extension_class

# A finder that finds no extension, as if their folders were deleted.
WITHOUT = """
import sys

FOLDERS = "albert_tf.extensions", "serving.inference.extensions"

class Deleted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith(FOLDERS):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Deleted)
import numpy as np, keras
from albert_tf import AlbertClassifier, AlbertConfig
from albert_tf.config import read_config
from serving.export import ExportSettings, export
from tfrecords.base.errors import UserError

read_config("bert_base_uncased")
sizes = dict(vocab_size=40, embedding_size=8, hidden_size=16, num_attention_heads=2, intermediate_size=24)
config = AlbertConfig(**sizes, num_hidden_layers=2, depth_plan="1x2", norm_position="pre", hidden_dropout_prob=0.1)
model = AlbertClassifier(config, 2)
model.compile(run_eagerly=True)
ids = np.ones((4, 6), "int32")
model.fit({"input_ids": ids}, np.array([0, 1, 0, 1]), verbose=0)
model.save(sys.argv[1])
again = keras.saving.load_model(sys.argv[1])
np.testing.assert_array_equal(again({"input_ids": ids}), model({"input_ids": ids}))
# It compares the SavedModel's answers with those of the model.
export(ExportSettings(model=sys.argv[1], output_dir=sys.argv[2], warm_up_lengths=""))
try:
    config.replace(halting="act")
except UserError as error:
    print(error)
assert not [name for name in sys.modules if name.startswith(FOLDERS)]
"""


@pytest.mark.parametrize("name", REGISTRY)
def test_the_registry_names_the_keys_of_an_extension(name):
    entry, cls = REGISTRY[name], extension_class(name)
    fields = dataclasses.fields(cls)
    assert cls.name == name and [field.name for field in fields] == list(entry.keys)
    assert entry.is_off(default_of(entry.keys[0]))
    assert all(default_of(field.name) == field.default for field in fields)
    assert {*cls.choices, *cls.limits, *cls.needed, *cls.published} <= set(entry.keys) and cls.walk == entry.walk


# An interpreter of its own, since this one has imported extensions: 20 s.
def test_without_extensions_the_core_builds_trains_saves_loads_and_exports(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "model.keras"), str(tmp_path / "servable")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "servable" / "1" / "saved_model.pb").is_file()
    assert run.stdout.splitlines()[-1] == "halting needs the extension 'halting', which is not installed"
