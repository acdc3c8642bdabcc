import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import builder, corpus, files
from tfrecords.errors import UserError
from tfrecords.examples import ExampleConfig
from tfrecords.reader import read_examples
from tfrecords.tokenizer import load_tokenizer
from tfrecords.writer import BuildConfig, ChunkBuilder, held_out

SMALL_CHUNKS = BuildConfig(
    ExampleConfig(seed=1, max_seq_length=64, max_predictions_per_seq=10), split_sentences=True, chunk_megabytes=0.03
)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def alive_in_session(session):
    """Processes of the session that have not ended (a zombie has)."""
    fields = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields.append(path.read_text().rpartition(")")[2].split())
    return [field for field in fields if field[3] == str(session) and field[0] != "Z"]


def run_script(module, **options):
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def one_worker(corpus_file, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    return folder


def test_manifest_tells_what_is_there(one_worker, tokenizer):
    manifest = files.read_json(one_worker / "manifest.json")
    assert manifest["tokenizer_sha256"] == tokenizer.sha256 == load_tokenizer(one_worker).sha256
    assert manifest["vocab_size"] == 1200
    assert manifest["max_seq_length"] == 64
    listed = [file for split in manifest["splits"].values() for file in split["files"]]
    assert {file["name"] for file in listed} == {path.name for path in one_worker.glob("*.tfrecord")}
    assert len(listed) > 10
    for file in listed:
        path = one_worker / file["name"]
        assert path.stat().st_size == file["bytes"]
        assert files.sha256(path) == file["sha256"]
        assert sum(1 for _ in tf.data.TFRecordDataset(str(path))) == file["examples"]
    for split in manifest["splits"].values():
        assert split["examples"] == sum(file["examples"] for file in split["files"])
    # 79, and the parts of those that are longer than so small a chunk.
    assert 79 <= sum(split["documents"] for split in manifest["splits"].values()) < 90
    assert not (one_worker / ".parts").exists()


def test_three_workers_write_the_same_bytes(one_worker, corpus_file, tokenizer, tmp_path):
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=3, overwrite=False)
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.slow
def test_ray_writes_the_same_bytes(one_worker, corpus_file, tokenizer, tmp_path):
    pytest.importorskip("ray")
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=2, overwrite=False, runner="ray")
    assert contents(tmp_path) == contents(one_worker)


def test_a_killed_build_goes_on_and_writes_the_same_bytes(one_worker, corpus_file, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--seed=1"]
    command += [f"--output_dir={folder}", f"--tokenizer={tmp_path / 'tokenizer'}", "--max_seq_length=64"]
    command += ["--max_predictions_per_seq=10", "--split_sentences", "--chunk_megabytes=0.03", "--workers=2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and len(list(folder.glob(".parts/*.done.json"))) < 2:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(folder.glob(".parts/*.done.json"))
    assert done, "the build was over before it could be killed"
    assert not (folder / "manifest.json").exists()
    stamps = {path: path.stat().st_mtime_ns for path in done}
    reused = []
    original = ChunkBuilder.build
    try:
        ChunkBuilder.build = lambda self, number, chunk: reused.append(number) or original(self, number, chunk)
        builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    finally:
        ChunkBuilder.build = original
    assert not {int(path.name.split(".")[0]) for path in stamps} & set(reused)
    assert contents(folder) == contents(one_worker)


@pytest.mark.parametrize("fail_after", [0, 1, 5, 11])
def test_assembly_can_be_cut_off_anywhere(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch, fail_after):
    replace, calls = os.replace, []

    def failing(source, target):
        if "-of-" in str(target):
            calls.append(target)
            if len(calls) > fail_after:
                raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(KeyboardInterrupt):
        builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    monkeypatch.undo()
    assert not (tmp_path / "manifest.json").exists()
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert contents(tmp_path) == contents(one_worker)


def test_a_complete_folder_is_kept_and_another_build_refused(corpus_file, tokenizer, tmp_path, capsys):
    corpus_file = shutil.copy(corpus_file, tmp_path / "a.txt")

    def build(workers=1, overwrite=False, **settings):
        config = BuildConfig(ExampleConfig(max_seq_length=64, **settings), split_sentences=True)
        return builder.build(str(corpus_file), tmp_path, tokenizer, config, workers, overwrite)

    first = build()
    stamp = (tmp_path / "manifest.json").stat().st_mtime_ns
    assert build() == first
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == stamp
    assert "complete already" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"seed 12345, now 2.*--overwrite"):
        build(seed=2)
    assert build(seed=2, overwrite=True) != first
    # The corpus changed under the same name.
    os.utime(corpus_file, ns=(1, 1))
    with pytest.raises(UserError, match="another corpus"):
        build(seed=2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda manifest: [], "is not a manifest of records"),
        (lambda manifest: {"splits": {}}, "is not a manifest of records"),
        (lambda manifest: {"name": "web app", "splits": "none"}, "is not a manifest of records"),
        (lambda manifest: manifest["splits"]["eval"].update(files=["a"]) or manifest, "is not a manifest of records"),
        (lambda manifest: manifest | {"of_another_version": 1}, "of_another_version 1, now None"),
    ],
    ids=["list", "no splits", "of another program", "no files", "one key more"],
)
def test_a_damaged_or_foreign_manifest_is_named(build, corpus_file, tokenizer, tmp_path, damage, message):
    shutil.copytree(build(), tmp_path, dirs_exist_ok=True)
    files.write_json(tmp_path / "manifest.json", damage(files.read_json(tmp_path / "manifest.json")))
    config = BuildConfig(SMALL_CHUNKS.examples, split_sentences=True)
    with pytest.raises(UserError, match=message):
        builder.build(str(corpus_file), tmp_path, tokenizer, config, workers=1, overwrite=False)
    if "not a manifest" in message:
        for patterns in (tmp_path, f"{tmp_path}/*.tfrecord"):
            with pytest.raises(UserError, match=message):
                read_examples(patterns, 4, training=True)


def test_gzip_holds_the_same_records(build):
    plain, zipped = build(), build(gzip=True)
    (zipped_name,) = (path.name for path in zipped.glob("train-*"))
    assert zipped_name == "train-00000-of-00001.tfrecord.gz"
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(plain / zipped_name.removesuffix(".gz")))]
    assert records == [r.numpy() for r in tf.data.TFRecordDataset(str(zipped / zipped_name), "GZIP")]


def test_dupe_factor_gives_other_examples_of_the_same_documents(build):
    once, thrice = (files.read_json(build(**s) / "manifest.json")["splits"] for s in ({}, {"dupe_factor": 3}))
    for split in ("train", "eval"):
        assert thrice[split]["documents"] == once[split]["documents"]
        assert 2.5 < thrice[split]["examples"] / once[split]["examples"] < 3.5


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25, 0.3, 0.5, 0.9])
def test_held_out_share_is_exact_and_random(fraction):
    numbers = np.arange(20_000)
    chosen = held_out(numbers, fraction, seed=1)
    assert abs(chosen.mean() - fraction) < 2 / 20_000 + 1e-9
    assert held_out(numbers[:2], fraction, seed=1).any()
    assert (held_out(numbers[777:999], fraction, seed=1) == chosen[777:999]).all()
    if fraction < 0.5:
        assert (held_out(numbers, fraction, seed=2) != chosen).any()
        # Every place within its stratum is as likely.
        places = np.bincount(np.flatnonzero(chosen) % round(1 / fraction))
        if 1 / fraction == round(1 / fraction):
            assert (np.abs(places - places.mean()) < 5 * np.sqrt(places.mean())).all()
    assert not held_out(numbers, 0, 1).any()


def test_train_and_eval_documents_are_apart(corpus_file, tokenizer, build):
    folder = build()
    documents = list(corpus.read_documents(str(corpus_file), split_sentences=True))
    kept_out = held_out(np.arange(len(documents)), 0.1, seed=1)
    texts = {True: "", False: ""}
    for document, out in zip(documents, kept_out):
        texts[bool(out)] += " ".join(str(i) for sentence in document for i in tokenizer.encode(sentence)) + " | "
    manifest = files.read_json(folder / "manifest.json")
    for split, out in (("train", False), ("eval", True)):
        assert manifest["splits"][split]["documents"] == (kept_out == out).sum()
        for record in tf.data.TFRecordDataset(str(folder / manifest["splits"][split]["files"][0]["name"])).take(40):
            feature = tf.train.Example.FromString(record.numpy()).features.feature
            values = {name: list(value.int64_list.value) for name, value in feature.items()}
            ids = values["input_ids"]
            count = int(sum(feature["masked_lm_weights"].float_list.value))
            for position, token in zip(values["masked_lm_positions"][:count], values["masked_lm_ids"]):
                ids[position] = token
            first = ids[1 : ids.index(tokenizer.sep_id)]
            assert " ".join(map(str, first)) in texts[out]


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "holds no document"),
        ("\n\n \n", {}, "holds no document"),
        ("one line.\n\nanother.", {"held_out_fraction": 0}, "give no training example.*--split_sentences"),
        ("one.\ntwo.\nthree.", {}, "held out give no example"),
    ],
)
def test_a_corpus_without_examples_is_refused(tokenizer, tmp_path, text, settings, message):
    (tmp_path / "a.txt").write_text(text)
    config = BuildConfig(ExampleConfig(max_seq_length=64), **settings)
    with pytest.raises(UserError, match=message):
        builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)
    assert not (tmp_path / "data/manifest.json").exists()
    # Nothing is left that stands in the way of the same folder with what is right.
    right = BuildConfig(ExampleConfig(max_seq_length=64, pair_task="none"), held_out_fraction=0)
    (tmp_path / "a.txt").write_text("one line.\n\nanother.")
    assert builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, right, 1, False)


def test_a_single_document_that_is_held_out_is_refused_by_that_reason(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("one.\ntwo.\nthree.")
    seed = next(seed for seed in range(99) if held_out(np.arange(1), 0.1, seed).all())
    config = BuildConfig(ExampleConfig(max_seq_length=64, seed=seed))
    with pytest.raises(UserError, match=r"all 1 documents .* held out.*--held_out_fraction=0"):
        builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)


def test_a_folder_that_lost_a_file_is_built_again(one_worker, corpus_file, tokenizer, tmp_path):
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    next(tmp_path.glob("train-00001*")).unlink()
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert contents(tmp_path) == contents(one_worker)


def test_ctrl_c_ends_the_workers_and_loses_nothing(one_worker, corpus_file, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--seed=1"]
    command += [f"--output_dir={folder}", f"--tokenizer={tmp_path / 'tokenizer'}", "--max_seq_length=64"]
    command += ["--max_predictions_per_seq=10", "--split_sentences", "--chunk_megabytes=0.03", "--workers=2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list(folder.glob(".parts/*.done.json")):
        time.sleep(0.005)
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert not (folder / "manifest.json").exists()
    until = time.monotonic() + 20
    while alive_in_session(process.pid):
        assert time.monotonic() < until
        time.sleep(0.05)
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert contents(folder) == contents(one_worker)


def test_hard_text_is_built_and_read_back(tokenizer, tmp_path):
    hard = ["word " * 20_000, "no spaces" * 5000, "\0\0", "emoji 👩‍👩‍👧 . 一。二。", "", "x", "\ud83d", "a\rb\r\nc"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ["\n".join(hard), *hard, ""] * 3))
    config = BuildConfig(ExampleConfig(max_seq_length=128), held_out_fraction=0.2)
    manifest = builder.build(str(path), tmp_path / "data", tokenizer, config, 1, False)
    assert manifest["splits"]["train"]["examples"] > 500
    assert manifest["splits"]["train"]["documents"] + manifest["splits"]["eval"]["documents"] == 30


class TestScripts:
    def test_train_and_build(self, corpus_file, tmp_path):
        trained = run_script(
            "tfrecords.train_tokenizer", input=corpus_file, output_prefix=tmp_path / "spm", vocab_size=500
        )
        assert trained.returncode == 0, trained.stderr
        built = run_script(
            "tfrecords.create_pretraining_data",
            input=corpus_file,
            output_dir=tmp_path / "data",
            tokenizer=tmp_path / "spm.model",
            max_seq_length=128,
        )
        assert built.returncode == 0, built.stderr
        assert "train examples" in built.stdout
        assert (tmp_path / "data/manifest.json").exists()

    @pytest.mark.parametrize(
        ("module", "options", "message"),
        [
            ("create_pretraining_data", {"input": "nowhere/*.txt"}, "matches no file"),
            ("create_pretraining_data", {"tokenizer": "nowhere.model"}, "does not exist"),
            ("create_pretraining_data", {"tokenizer": "{corpus}"}, "WordPiece vocabulary"),
            ("create_pretraining_data", {"output_dir": "/proc/nowhere"}, "output folder"),
            ("create_pretraining_data", {"pair_task": "none", "input_format": "x"}, "input_format"),
            ("train_tokenizer", {"output_prefix": "/proc/nowhere/spm"}, "output folder"),
            ("inspect_examples", {"input": "nowhere"}, "matches no record file"),
        ],
    )
    def test_one_line_and_a_status(self, corpus_file, tokenizer, tmp_path, module, options, message):
        tokenizer.save(tmp_path / "tokenizer")
        given = {
            "create_pretraining_data": {"output_dir": tmp_path / "data", "tokenizer": tmp_path / "tokenizer"},
            "train_tokenizer": {"output_prefix": tmp_path / "spm"},
            "inspect_examples": {},
        }[module]
        options = {name: value.format(corpus=corpus_file) for name, value in options.items()}
        ran = run_script(f"tfrecords.{module}", **({"input": corpus_file} | given | options))
        assert ran.returncode in (1, 2)
        assert message in ran.stderr
        assert "Traceback" not in ran.stderr
        assert not list(tmp_path.glob("data/*.tfrecord"))
