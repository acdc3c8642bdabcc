"""What a build left goes on, is kept or refused: kills, lost and damaged files, another corpus."""

import contextlib
import dataclasses
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tfrecords.conftest import SMALL_CHUNKS, contents
from tfrecords import builder, deal
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.build_folder import BuildFolder
from tfrecords.build_settings import BuildSettings
from tfrecords.reader import read_examples
from tfrecords.worker import Worker


def alive_in_session(session):
    """Processes of the session that have not ended (a zombie has)."""
    fields = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields.append(path.read_text().rpartition(")")[2].split())
    return [field for field in fields if field[3] == str(session) and field[0] != "Z"]


def build_command(corpus_file, tokenizer, folder):
    """A build of SMALL_CHUNKS by two workers, in a process of its own."""
    tokenizer.save(folder.parent / "tokenizer")
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--seed=1"]
    command += [f"--output_dir={folder}", f"--tokenizer={folder.parent / 'tokenizer'}", "--max_seq_length=64"]
    return [*command, "--max_predictions_per_seq=10", "--split_sentences", "--chunk_megabytes=0.03", "--workers=2"]


def test_a_killed_build_goes_on_and_writes_the_same_bytes(one_worker, corpus_file, tokenizer, tmp_path):
    folder = tmp_path / "data"
    command = build_command(corpus_file, tokenizer, folder)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and len(list(folder.glob(".parts/shard-*.json"))) < 2:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # A shard without its report is built again: the kill may have come between the two.
    done = [path.with_suffix(".tfrecord") for path in folder.glob(".parts/shard-*.json")]
    assert done, "the build was over before it could be killed"
    assert not (folder / "manifest.json").exists()
    # A file's name changes, and its inode stays.
    finished = {path.stat().st_ino for path in done}
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert finished <= {path.stat().st_ino for path in folder.iterdir()}
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
        config = BuildSettings(max_seq_length=64, **settings, split_sentences=True)
        return builder.build(str(corpus_file), tmp_path, tokenizer, config, workers, overwrite)

    first = build()
    stamp = (tmp_path / "manifest.json").stat().st_mtime_ns
    assert build() == first
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == stamp
    assert "complete already" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"seed 12345, now 2.*--overwrite"):
        build(seed=2)
    assert build(seed=2, overwrite=True) != first
    # Touched, moved, and changed under the same name without a change of its size.
    stamp = (tmp_path / "manifest.json").stat().st_mtime_ns
    os.utime(corpus_file, ns=(1, 1))
    build(seed=2)
    corpus_file = shutil.move(corpus_file, tmp_path / "b.txt")
    build(seed=2)
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == stamp
    text = Path(corpus_file).read_bytes()
    Path(corpus_file).write_bytes(text.replace(b"statement", b"Statement", 1))
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
    config = dataclasses.replace(SMALL_CHUNKS, chunk_megabytes=0.0)
    with pytest.raises(UserError, match=message):
        builder.build(str(corpus_file), tmp_path, tokenizer, config, workers=1, overwrite=False)
    if "not a manifest" in message:
        for patterns in (tmp_path, f"{tmp_path}/*.tfrecord"):
            with pytest.raises(UserError, match=message):
                read_examples(patterns, 4, training=True)


def inodes(folder):
    """Of every record file; equal for a file that was only renamed."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.tfrecord")}


def copied(folder, target):
    shutil.copytree(folder, target)
    return target


@pytest.mark.parametrize("kill", [False, True])
def test_a_lost_file_is_built_again_alone(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch, kill):
    folder = copied(one_worker, tmp_path / "data")
    next(folder.glob("train-00001-*")).unlink()
    before = inodes(folder)
    if kill:
        monkeypatch.setattr(BuildFolder, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
        monkeypatch.undo()
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert contents(folder) == contents(one_worker)
    assert before.items() <= inodes(folder).items()


def test_of_a_changed_corpus_only_the_shards_that_changed_are_built(tokenizer, tmp_path):
    for number in range(300):
        (tmp_path / f"{number:03d}.txt").write_text("\n".join(f"Article {number} line {n}." for n in range(20)))
    config = BuildSettings(seed=1, max_seq_length=64, chunk_megabytes=0.015)
    pattern = f"{tmp_path}/*.txt"

    def build(folder, overwrite=False):
        return builder.build(pattern, folder, tokenizer, config, workers=1, overwrite=overwrite)

    assert build(tmp_path / "data")["shards"] == [7, 1]
    before = inodes(tmp_path / "data")
    # As many bytes as before, so that there are as many shards.
    text = (tmp_path / "123.txt").read_text()
    (tmp_path / "123.txt").write_text(text.replace("line 1.", "line X."))
    with pytest.raises(UserError, match="another corpus"):
        build(tmp_path / "data")
    assert inodes(tmp_path / "data") == before
    build(tmp_path / "data", overwrite=True)
    changed = {name for name, inode in inodes(tmp_path / "data").items() if before[name] != inode}
    assert 1 <= len(changed) <= 2
    build(tmp_path / "fresh")
    assert contents(tmp_path / "data") == contents(tmp_path / "fresh")


def test_a_mended_file_goes_on_with_what_is_done(tokenizer, tmp_path):
    rows = [json.dumps({"text": f"Line one of {n}.\nLine two of {n}.\nLine three of {n}."}) for n in range(600)]
    for name, some in (("a", rows[:300]), ("b", rows[300:])):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(some).encode(), mtime=0))
    whole = (tmp_path / "b.jsonl.gz").read_bytes()
    (tmp_path / "b.jsonl.gz").write_bytes(whole[:-30])
    config = BuildSettings(seed=1, max_seq_length=64, chunk_megabytes=0.01)

    def build(folder):
        return builder.build(f"{tmp_path}/*.gz", tmp_path / folder, tokenizer, config, 1, False)

    with pytest.raises(UserError, match="damaged"):
        build("data")
    done = {path: path.stat().st_ino for path in (tmp_path / "data/.parts").glob("piece-*.json")}
    assert done
    (tmp_path / "b.jsonl.gz").write_bytes(whole)
    build("data")
    build("fresh")
    assert contents(tmp_path / "data") == contents(tmp_path / "fresh")


def test_two_builds_in_one_folder_are_refused(corpus_file, tokenizer, tmp_path):
    with files.locked(tmp_path), pytest.raises(UserError, match="another process is at work"):
        builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)


def test_overwrite_removes_only_what_the_build_wrote(one_worker, corpus_file, tokenizer, tmp_path):
    folder = copied(one_worker, tmp_path / "data")
    mine = folder / "train-00000-of-00001.tfrecord-notes"
    other = folder / "train-00000-of-00003.tfrecord"
    for path in (mine, other):
        path.write_text("mine")
    config = BuildSettings(seed=2, max_seq_length=64, split_sentences=True)
    builder.build(str(corpus_file), folder, tokenizer, config, workers=1, overwrite=True)
    assert mine.exists() and other.exists()
    assert len(inodes(folder)) == 3


def test_a_part_that_was_cut_off_is_built_again(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(BuildFolder, "publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    monkeypatch.undo()
    part = tmp_path / ".parts/shard-000003.tfrecord"
    part.write_bytes(part.read_bytes()[:-9])
    (tmp_path / ".parts/shard-000004.tfrecord").unlink()
    # What a process was writing that is no more: none has such a number.
    unfinished = tmp_path / ".manifest.4194305.partial.json"
    unfinished.write_text("{")
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert not unfinished.exists()
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.parametrize("what, keep", [("*.spill", 0.5), ("*.spill", 0), ("*.json", 0.5), ("*.json", 0)])
def test_what_was_cut_off_between_the_passes_is_made_again(
    one_worker, corpus_file, tokenizer, tmp_path, monkeypatch, what, keep
):
    """As a power cut leaves files that nobody waited for."""
    monkeypatch.setattr(deal, "FAN_OUT", 3)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Worker, "build", lambda *_: 1 / 0)
        builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    cut = [path for kind in ("piece", "group") for path in (tmp_path / ".parts").glob(kind + what)]
    assert len(cut) > 1
    for path in cut:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    ours, theirs = contents(tmp_path), contents(one_worker)
    records = {name for name in theirs if ".tfrecord" in name}
    assert records and all(ours[name] == theirs[name] for name in records)


def test_a_report_lost_after_a_lost_file_is_met_too(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch):
    folder = copied(one_worker, tmp_path / "data")
    next(folder.glob("train-00001-*")).unlink()
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(BuildFolder, "publish", lambda *_: 1 / 0)
        builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    (folder / ".parts/shard-000005.json").write_bytes(b"")
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    assert contents(folder) == contents(one_worker)


def test_ctrl_c_ends_the_workers_and_loses_nothing(one_worker, corpus_file, tokenizer, tmp_path):
    folder = tmp_path / "data"
    command = build_command(corpus_file, tokenizer, folder)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list(folder.glob(".parts/shard-*.json")):
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
