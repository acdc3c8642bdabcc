"""The benchmark of example building, as far as it can go wrong without a clone of google-research/albert."""

import pytest

from benchmarks import example_building

SCRIPT = """
import sys
import tensorflow_hub
from albert import tokenization
options = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
assert options["vocab_file"] == "" and options["spm_model_file"] == tokenization.MODEL
open(options["output_file"], "w").write(open(options["input_file"]).read())
"""


@pytest.mark.parametrize("name", ["albert", "plain clone"])
def test_the_official_script_finds_its_own_modules_in_a_clone_of_any_name(tmp_path, name):
    clone = tmp_path / "somewhere" / name
    clone.mkdir(parents=True)
    (clone / "__init__.py").touch()
    (clone / "create_pretraining_data.py").write_text(SCRIPT)
    (clone / "tokenization.py").write_text("MODEL = 'a.model'")
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "work").mkdir()
    assert example_building.run_official(clone, tmp_path / "text.txt", "a.model", tmp_path / "work") > 0
    assert (tmp_path / "work/official.tfrecord").read_text() == "hello"
