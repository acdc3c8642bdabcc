"""What a build left goes on, is kept or refused: kills, lost and damaged files, another corpus."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.refusals import refused
from tests.tfrecords.conftest import SMALL, SMALL_CHUNKS, contents
from tfrecords.base import files
from tfrecords.building import builder
from tfrecords.building.settings import BuildSettings
from tfrecords.building.worker import Worker
from tfrecords.reader import read_examples


def alive_in_session(session):
    """Processes of the session that have not ended (a zombie has)."""
    fields = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields.append(path.read_text().rpartition(")")[2].split())
    return [field for field in fields if field[3] == str(session) and field[0] != "Z"]


@pytest.fixture
def start(corpus_file, tokenizer, tmp_path):
    """Starts a build of SMALL_CHUNKS by two workers, in processes of its own; returns once shards are finished."""

    def begin(shards, **options):
        tokenizer.save(tmp_path / "tokenizer")
        command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--workers=2"]
        command += [f"--output_dir={tmp_path}/data", f"--tokenizer={tmp_path}/tokenizer", "--chunk_megabytes=0.03"]
        command += ["--seed=1", "--max_seq_length=64", "--max_predictions_per_seq=10", "--split_sentences"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **options)
        while process.poll() is None and len(list(tmp_path.glob("data/.parts/shard-*.json"))) < shards:
            time.sleep(0.005)
        return process

    return begin


def test_a_killed_build_goes_on_and_writes_the_same_bytes(one_worker, start, build_corpus, tmp_path):
    folder = tmp_path / "data"
    with start(2) as process:
        process.kill()
    # A shard without its report is built again: the kill may have come between the two.
    done = [path.with_suffix(".tfrecord") for path in folder.glob(".parts/shard-*.json")]
    assert done, "the build was over before it could be killed"
    assert not (folder / "manifest.json").exists()
    # A file's name changes, and its inode stays.
    finished = {path.stat().st_ino for path in done}
    build_corpus(folder)
    assert finished <= {path.stat().st_ino for path in folder.iterdir()}
    assert contents(folder) == contents(one_worker)


def test_ctrl_c_ends_the_workers(start, tmp_path):
    process = start(1, start_new_session=True)
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert not (tmp_path / "data/manifest.json").exists()
    until = time.monotonic() + 100
    while alive_in_session(process.pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_assembly_can_be_cut_off_anywhere(one_worker, build_corpus, tmp_path, monkeypatch):
    replace, calls = os.replace, []

    def failing(source, target):
        if "-of-" in Path(target).name:
            calls.append(target)
            if len(calls) > 5:
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", failing)
        build_corpus(tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    build_corpus(tmp_path)
    assert contents(tmp_path) == contents(one_worker)


def test_a_complete_folder_is_kept_and_another_build_refused(corpus_file, tokenizer, tmp_path, capsys):
    corpus_file = shutil.copy(corpus_file, tmp_path / "a.txt")

    def build(overwrite=False, **settings):
        config = BuildSettings(max_seq_length=64, **settings, split_sentences=True)
        return builder.build(str(corpus_file), tmp_path, tokenizer, config, 1, overwrite)

    first = build()
    stamp = (tmp_path / "manifest.json").stat().st_mtime_ns
    assert build() == first
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == stamp
    assert "complete already" in capsys.readouterr().out
    with refused(r"seed 12345, now 2.*--overwrite"):
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
    with refused("another corpus"):
        build(seed=2)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda manifest: [], "is not a manifest of records"),
        (lambda manifest: {"name": "web app", "splits": "none"}, "is not a manifest of records"),
        (lambda manifest: manifest["splits"]["eval"].update(files=["a"]) or manifest, "is not a manifest of records"),
        (
            lambda manifest: {key: manifest[key] for key in manifest if key != "max_ngram"} | {"masking": "dynamic"},
            "is not a manifest of records",
        ),
        (lambda manifest: manifest | {"of_another_version": 1}, "of_another_version 1, now None"),
    ],
    ids=["list", "of another program", "no files", "no rule of its masks", "one key more"],
)
def test_a_damaged_or_foreign_manifest_is_named(build, build_corpus, tmp_path, damage, message):
    shutil.copytree(build(), tmp_path, dirs_exist_ok=True)
    files.write_json(tmp_path / "manifest.json", damage(files.read_json(tmp_path / "manifest.json")))
    with refused(message):
        build_corpus(tmp_path, dataclasses.replace(SMALL_CHUNKS, chunk_megabytes=0.0))
    if "not a manifest" in message:
        for patterns in (tmp_path, f"{tmp_path}/*.tfrecord"):
            with refused(message):
                read_examples(patterns, 4, training=True)


def inodes(folder):
    """Of every record file; equal for a file that was only renamed."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.tfrecord")}


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_folder_that_lost_a_file_is_refused_and_built_anew(one_worker, build_corpus, tmp_path, lose):
    folder = shutil.copytree(one_worker, tmp_path / "data")
    (lost,) = folder.glob("train-00001-*")
    lose(lost)
    with refused(f"an incomplete build: '{lost.name}' is missing or was changed; .*--overwrite"):
        build_corpus(folder)
    build_corpus(folder, overwrite=True)
    assert contents(folder) == contents(one_worker)


def test_a_corpus_that_changed_while_its_build_was_stopped_is_refused(tokenizer, tmp_path, cut_off):
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(f"Article {number}.\nIt is short." for number in range(200)))
    config = BuildSettings(seed=1, max_seq_length=64, chunk_megabytes=0.01)

    def build(name, overwrite=False):
        return builder.build(str(source), tmp_path / name, tokenizer, config, 1, overwrite)

    cut_off("data", build=build)
    source.write_text(source.read_text().replace("Article 7.", "Article seven."))
    with refused(r"records of another corpus; .*--overwrite"):
        build("data")
    build("data", overwrite=True)
    build("fresh")
    assert contents(tmp_path / "data") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_unfinished_build_of_other_settings_is_refused_or_removed(build, build_corpus, cut_off, tmp_path, overwrite):
    cut_off(tmp_path)
    other = BuildSettings(**SMALL | {"seed": 2})
    if overwrite:
        build_corpus(tmp_path, other, overwrite=True)
        assert contents(tmp_path) == contents(build(seed=2))
    else:
        with refused(r"records built with seed 1, now 2; .*--overwrite"):
            build_corpus(tmp_path, other)
        assert list((tmp_path / ".parts").glob("shard-*.tfrecord"))


def test_records_of_another_format_are_refused_by_its_number(one_worker, build_corpus, tmp_path):
    folder = shutil.copytree(one_worker, tmp_path / "data")
    files.write_json(folder / "manifest.json", files.read_json(folder / "manifest.json") | {"format_version": 2})
    for read in (build_corpus, lambda folder: read_examples(folder, 4, training=True)):
        with refused(r"manifest.json' has format_version 2; albert-tf .* reads 3"):
            read(folder)


def test_two_builds_in_one_folder_are_refused(build_corpus, tmp_path):
    with files.locked(tmp_path), refused("another process is at work"):
        build_corpus(tmp_path)
    build_corpus(tmp_path)


def test_overwrite_removes_only_what_the_build_wrote(one_worker, build_corpus, tmp_path):
    folder = shutil.copytree(one_worker, tmp_path / "data")
    mine = [folder / f"train-00000-of-{name}" for name in ("00001.tfrecord-notes", "00003.tfrecord")]
    for path in mine:
        path.write_text("mine")
    build_corpus(folder, BuildSettings(seed=2, max_seq_length=64, split_sentences=True), overwrite=True)
    assert all(path.read_text() == "mine" for path in mine)
    assert len(inodes(folder)) == 3


def test_a_part_that_was_cut_off_is_built_again(one_worker, build_corpus, cut_off, tmp_path):
    cut_off(tmp_path)
    part = tmp_path / ".parts/shard-000002.tfrecord"
    part.write_bytes(part.read_bytes()[:-9])
    (tmp_path / ".parts/shard-000003.tfrecord").unlink()
    # What a process was writing that is no more: none has such a number.
    unfinished = tmp_path / ".manifest.4194305.partial.json"
    unfinished.write_text("{")
    build_corpus(tmp_path)
    assert not unfinished.exists()
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.parametrize("what, size", [("*.spill", 0.5), ("*.json", 0)])
def test_what_was_cut_off_between_the_passes_is_made_again(one_worker, build_corpus, cut_off, tmp_path, what, size):
    """As a power cut leaves files that nobody waited for."""
    cut_off(tmp_path, owner=Worker, method="build")
    cut = list((tmp_path / ".parts").glob(f"piece{what}"))
    assert cut
    for path in cut:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * size)])
    build_corpus(tmp_path)
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.parametrize(
    "name, text",
    [
        *(("job.json", text) for text in ("{", "[1]")),
        *(("publishing.json", text) for text in ("{", "[1]", "{}", '{"names": 3, "manifest": "", "content": ""}')),
    ],
)
def test_an_unfinished_build_with_a_damaged_file_goes_on(one_worker, build_corpus, cut_off, tmp_path, name, text):
    cut_off(tmp_path)
    (tmp_path / ".parts" / name).write_text(text)
    build_corpus(tmp_path)
    assert contents(tmp_path) == contents(one_worker)


def test_after_a_power_cut_text_is_read_again_and_finished_shards_stay(
    one_worker, build_corpus, cut_off, tmp_path, monkeypatch
):
    cut_off(tmp_path)
    finished = {path.stat().st_ino for path in tmp_path.glob(".parts/shard-*.tfrecord")}
    read, method = [], Worker.read_piece
    monkeypatch.setattr(Worker, "read_piece", lambda *task: read.append(task) or method(*task))
    monkeypatch.setattr(builder, "_boot_id", lambda: "another")
    build_corpus(tmp_path)
    assert read and finished == set(inodes(tmp_path).values())
    assert contents(tmp_path) == contents(one_worker)
