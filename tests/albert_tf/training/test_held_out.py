"""Held-out records that are training records are refused, by the manifests of their builds."""

import dataclasses
import re
from pathlib import Path

import pytest

from albert_tf import run_evaluation
from albert_tf.training.phases import read_phases
from tests.refusals import refused
from tests.tfrecords.conftest import build_text
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.reading.manifest import check_held_out

TOKENIZER = wordpiece(*"0123456789")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """build(files, **settings): a folder of records of these files, of a hundred documents each."""
    folder, texts = tmp_path_factory.mktemp("records"), {}
    for file in "abc":
        numbers = (" ".join(f"{ord(file)}{n:02}") for n in range(100))
        texts[file] = "".join(f"{text}\n{text} 4\n\n" for text in numbers)

    def make(name, **changes):
        settings = {"seed": 1, "held_out_fraction": 0.2, "max_seq_length": 32, "max_predictions_per_seq": 4} | changes
        output = "-".join(f"{key}{value}" for key, value in settings.items())
        build_text(folder / name, {f"{file}.txt": texts[file] for file in name}, TOKENIZER, output, **settings)
        return str(folder / name / output)

    return make


def test_files_of_the_other_split_are_refused(build):
    data = build("ab")
    check_held_out([data], [data])
    check_held_out([f"{data}/*.tfrecord"], [f"{data}/*.tfrecord"])
    with refused("train-00000.* holds training records, but is given as held-out data"):
        check_held_out([data], [f"{data}/train-*"])
    with refused("eval-00000.* holds held-out records, but is given as training data"):
        check_held_out([data, f"{data}/eval-*"], [])


# The training build, the held-out one, and what is said.
BUILDS = [
    (("ab", {}), ("ab", {"max_seq_length": 16}), ""),
    (("ab", {"seed": 2}), ("c", {}), ""),
    (("ab", {"held_out_fraction": 0.2}), ("ab", {"held_out_fraction": 0.1}), ""),
    (("ab", {"seed": 2}), ("ab", {}), "^about 80% of the held-out .* are training .* another seed; build both"),
    (("abc", {"seed": 2}), ("ab", {}), "^about 80% .* another seed"),
    (("ab", {"held_out_fraction": 0.05}), ("ab", {}), "^about 75% .* another held_out_fraction"),
    (("ab", {"held_out_fraction": 0.0}), ("ab", {}), "^about 100% .* another held_out_fraction"),
    (("a", {"seed": 2}), ("abc", {}), "warning: about 27% .* another seed"),
]


@pytest.mark.parametrize("train, held_out, said", BUILDS)
def test_two_builds_of_one_corpus_hold_out_the_same_or_are_told(build, capsys, train, held_out, said):
    (name, changes), (other, other_changes) = train, held_out
    patterns = [build(name, **changes)], [build(other, **other_changes)]
    capsys.readouterr()
    if said.startswith("^"):
        with refused(said):
            check_held_out(*patterns)
    else:
        check_held_out(*patterns)
        assert re.fullmatch(f"{said}.*\n" if said else "", capsys.readouterr().out)


def test_pretraining_and_evaluation_ask(build, tiny_settings):
    data, other = build("ab"), build("ab", seed=2)
    settings = dataclasses.replace(tiny_settings, train_data=data, eval_data=data)
    read_phases(settings, 1)
    second = {"second_train_data": other, "second_from_step": 2}
    for changes in (
        {"eval_data": f"{data}/train-*"},
        {"eval_data": other},
        second,
        second | {"second_eval_data": other},
    ):
        with refused("holds training records|about 80% of the held-out documents"):
            read_phases(dataclasses.replace(settings, **changes), 1)
    given = run_evaluation.EvaluationSettings(model=str(Path(data).parent), train_data=data, eval_data=other)
    with refused("about 80% of the held-out documents"):
        run_evaluation.main(given)
