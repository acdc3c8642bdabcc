"""Commands end with one clear line and a status that is not 0, and print nothing of TensorFlow's start."""

import re
import shutil

import pytest

from albert_tf import run_finetuning, run_pretraining
from albert_tf.tasks.settings import FinetuningSettings
from serving.commands import COMMANDS
from tfrecords.base.version import VERSION


@pytest.mark.parametrize(
    "command, message",
    [
        ("albert_tf.run_pretraining", "error: --output_dir=..., --train_data=... must be given"),
        ("albert_tf.run_pretraining --learning_rat=1", "error: Unknown command line flag 'learning_rat'"),
        ("albert_tf.run_pretraining --seed=x", "error: flag --seed=x: must be a whole number"),
        ("serving.export --model=no --output_dir=out surplus", "error: unexpected argument 'surplus'"),
        ("albert_tf.run_pretraining --train_data=no/* --output_dir=o --config=albert_tiny", "matches no record file"),
        ("albert_tf.run_finetuning --task=sst2 --data_dir=. --output_dir=o --init_from=no", "no model at 'no'"),
        ("albert_tf.run_finetuning --task=sst2 --data_dir=no --output_dir=o --config=albert_tiny", "no folder 'no'"),
        ("albert_tf.run_finetuning --data_file=no.csv --output_dir=o --config=albert_tiny", "no.csv does not exist"),
        (
            "albert_tf.run_finetuning --data_file=. --output_dir=o --config=albert_tiny",
            "is a folder; give it by --data_dir",
        ),
        ("albert_tf.run_evaluation --model=. --data_file=no.csv", "--data_file=no.csv does not exist"),
        ("albert_tf.run_evaluation --model=. ", "give --data_file=... to evaluate a fine-tuned model"),
        ("albert_tf.run_evaluation --model=no --train_data=no --eval_data=no", "no model at 'no'"),
        ("albert_tf.run_ensemble --task=sst2 --data_dir=. --models=no --output_dir=o", "no model at 'no'"),
        ("albert_tf.convert_checkpoint --input=no --output=o --to=keras", "no model at 'no'"),
        ("albert_tf.convert_checkpoint --input=a --output=b --to=torch", "--to=torch"),
        ("albert_tf.analysis --configs=albert_base_v3", "no configuration is called 'albert_base_v3'"),
        ("albert_tf.compress --model=no --output_dir=o --text=t --num_train_steps=0", "no model at 'no'"),
        ("albert_tf.compress --model=. --output_dir=o --text=no", "corpus 'no' matches no file"),
        ("albert_tf.analysis --configs=no.json", "no.json"),
        ("albert_tf.analysis.layer_distances --models=no --tokenizer=no --input=no --output_dir=o", "no model at 'no'"),
        ("serving.export --model=no --output_dir=o", "no model at 'no'"),
        ("serving.export --model=. --output_dir=o --tokenizer=no", "tokenizer 'no' does not exist"),
        ("serving.export --model=. --output_dir=o --calibration_text=no", "cannot read --calibration_text=no"),
        ("tfrecords.create_pretraining_data --input=no --output_dir=o --tokenizer=no", "corpus 'no' matches no file"),
        ("tfrecords.train_tokenizer --input=no --output_prefix=o", "corpus 'no' matches no file"),
    ],
)
def test_one_clear_line(run_module, command, message, tmp_path):
    # One in an interpreter of its own, to see that TensorFlow starts silently.
    is_fresh = command.endswith("surplus")
    ended = run_module(*command.split(), cwd=tmp_path, fresh=is_fresh, without_tensorflow=not is_fresh)
    assert ended.returncode == (2 if "flag" in message else 1)
    assert ended.stderr.startswith("error: ") and message in ended.stderr and len(ended.stderr.splitlines()) <= 2
    assert ended.stdout == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [module for module, _ in COMMANDS.values()])
def test_help_does_not_wait_for_tensorflow(run_module, module):
    ended = run_module(module, "--help", without_tensorflow=True)
    assert ended.returncode == 0, ended.stderr
    assert "--" in ended.stdout


def test_a_damaged_record_is_one_clear_line_too(run_module, tiny_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(tiny_data, data)
    for path in data.glob("train-*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    ended = run_module("tfrecords.inspect_examples", f"--input={data}")
    assert ended.returncode == 1
    assert "error: a record file is damaged" in ended.stderr and "Traceback" not in ended.stderr
    found = run_module("tfrecords.inspect_examples", f"--input={data}", "--sample=0")
    assert found.returncode == 1 and "train-00000" in found.stderr


@pytest.mark.usefixtures("eagerly")
def test_training_ends_with_what_it_wrote_and_the_next_command(tiny_settings, tiny_run, tmp_path, capsys):
    run_pretraining.main(tiny_settings)  # Of a run that is done.
    said = capsys.readouterr()
    assert re.search(rf"wrote {tiny_run}/model.keras: held-out loss [\d.]+ at step \d, the best\n$", said.out)
    assert f"next: python -m albert_tf.run_finetuning --init_from={tiny_run} " in said.err.splitlines()[-1]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n" + "a good value\tyes\na bad object\tno\n" * 4)
    folder = tmp_path / "run"
    settings = FinetuningSettings(
        task="classification", data_dir=str(tmp_path), init_from=str(tiny_run), output_dir=str(folder),
        train_batch_size=4, num_train_steps=2, other_tokenizer=True
    )  # fmt: skip
    run_finetuning.main(settings)
    said = capsys.readouterr()
    assert re.search(rf"wrote {folder}/model.keras: .*accuracy [\d.]+", said.out)
    assert said.err.splitlines()[-1].startswith(f"next: python -m serving.export --model={folder} ")


@pytest.mark.parametrize(
    "arguments, status, out, err",
    [
        ("", 0, "Usage: albert-tf COMMAND", ""),
        ("--help", 0, "  finetune          fine-tune a model", ""),
        ("--version", 0, f"albert-tf {VERSION} (TensorFlow ", ""),
        ("finetune --help", 0, "Usage: albert-tf finetune ", ""),
        ("pretrain --help", 0, "(default: 0.00176)", ""),
        ("finetune --version", 0, f"albert-tf {VERSION} (", ""),
        ("serve --help", 0, "\nalbert-tf serve --port=8500 ", ""),
        (
            "serve --port 8500",
            255,
            "--port has no value: write --port=VALUE, with '=' and without a space\nusage: albert-tf s",
            "",
        ),
        ("pretrain --train_data=no --output_dir=o --config=albert_tiny", 1, "", "build some: albert-tf examples"),
        ("fintune", 2, "", "error: unknown command 'fintune'; did you mean 'finetune'? (albert-tf --help"),
        ("finetune --hlep", 2, "", "error: Unknown command line flag 'hlep'. Did you mean: help"),
        ("export", 1, "", "error: --model=..., --output_dir=... must be given"),
    ],
)
def test_albert_tf_starts_every_command_by_its_name(run_module, arguments, status, out, err):
    ended = run_module("serving.commands", *arguments.split(), without_tensorflow=True)
    assert ended.returncode == status, ended.stderr
    assert out in ended.stdout and err in ended.stderr and len(ended.stderr.splitlines()) == bool(err)
