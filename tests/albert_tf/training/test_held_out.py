"""Records of the wrong split are refused, by the manifests of their builds."""

import dataclasses
from pathlib import Path

import pytest

from albert_tf import run_evaluation
from albert_tf.training.held_out import check_held_out
from albert_tf.training.phases import read_phases
from tests.albert_tf.refusals import refused
from tfrecords import builder
from tfrecords.build_settings import BuildSettings
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TOKENIZER = WordPieceTokenizer("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of records."""
    folder = tmp_path_factory.mktemp("records")
    texts = (" ".join(WORDS[int(digit)] for digit in f"{n:02}") for n in range(100))
    (folder / "a.txt").write_text("".join(f"{text}\n{text} four\n\n" for text in texts))
    settings = BuildSettings(held_out_fraction=0.2, max_seq_length=32, max_predictions_per_seq=4)
    builder.build(str(folder / "a.txt"), folder / "data", TOKENIZER, settings, 1, False)
    return str(folder / "data")


def test_files_of_the_other_split_are_refused(data, tmp_path):
    check_held_out([data], [data])
    check_held_out([f"{data}/*.tfrecord"], [f"{data}/*.tfrecord"])
    with refused("train-00000.* holds training records, but is given as held-out data"):
        check_held_out([data], [f"{data}/train-*"])
    with refused("eval-00000.* holds held-out records, but is given as training data"):
        check_held_out([data, f"{data}/eval-*"], [])
    # Of another program, the names say it.
    (tmp_path / "train-1.tfrecord").write_bytes(b"")
    with refused("holds training records"):
        check_held_out([f"{tmp_path}/train-1.tfrecord"], [f"{tmp_path}/train-1.tfrecord"])


def test_pretraining_and_evaluation_ask(data, tiny_settings):
    settings = dataclasses.replace(tiny_settings, train_data=data, eval_data=data)
    read_phases(settings, 1)
    second = {"second_train_data": data, "second_from_step": 2, "second_eval_data": f"{data}/train-*"}
    for changes in ({"eval_data": f"{data}/train-*"}, second):
        with refused("holds training records"):
            read_phases(dataclasses.replace(settings, **changes), 1)
    given = run_evaluation.EvaluationSettings(
        model=str(Path(data).parent), train_data=data, eval_data=f"{data}/train-*"
    )
    with refused("holds training records"):
        run_evaluation.main(given)
