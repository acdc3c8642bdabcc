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

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import builder, corpus, deal
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.build_folder import BuildFolder
from tfrecords.build_settings import BuildSettings
from tfrecords.deal import Deal, hash_texts
from tfrecords.reader import read_examples
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.worker import Worker

SMALL_CHUNKS = BuildSettings(
    seed=1, max_seq_length=64, max_predictions_per_seq=10, split_sentences=True, chunk_megabytes=0.03
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


@pytest.fixture
def run_script(run_module):
    return lambda module, **options: run_module(module, *(f"--{name}={value}" for name, value in options.items()))


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


@pytest.mark.slow
def test_a_ray_worker_that_always_dies_ends_in_one_line(corpus_file, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(builder, "Worker", lambda *_: _Dying())
    with pytest.raises(UserError, match="is unfinished: a worker of Ray died each time"):
        builder.build(str(corpus_file), tmp_path, tokenizer, SMALL_CHUNKS, workers=2, overwrite=False, runner="ray")


class _Dying:
    """A worker that dies of its first task. Ray's processes do not know this module, so it says how to make one."""

    def __reduce__(self):
        return (eval, ("__import__('types').SimpleNamespace(read_piece=lambda *_: __import__('os')._exit(1))",))


def test_a_killed_build_goes_on_and_writes_the_same_bytes(one_worker, corpus_file, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--seed=1"]
    command += [f"--output_dir={folder}", f"--tokenizer={tmp_path / 'tokenizer'}", "--max_seq_length=64"]
    command += ["--max_predictions_per_seq=10", "--split_sentences", "--chunk_megabytes=0.03", "--workers=2"]
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


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.9])
def test_held_out_share_is_as_asked_and_hangs_on_the_document_alone(fraction):
    hashes = hash_texts(str(number).encode() for number in range(20_000))
    chosen = Deal(1, 8, 2, fraction).shard_of(hashes) >= 8
    assert abs(chosen.mean() - fraction) < 4.5 * np.sqrt(fraction * (1 - fraction) / 20_000)
    assert (
        Deal(1, 8, 2, fraction).shard_of(hashes[777:999]) == Deal(1, 8, 2, fraction).shard_of(hashes)[777:999]
    ).all()
    assert ((Deal(2, 8, 2, fraction).shard_of(hashes) >= 8) != chosen).any()


@pytest.mark.parametrize("seed", range(12))
def test_of_two_documents_one_is_held_out(tokenizer, tmp_path, seed):
    (tmp_path / "a.txt").write_text("one.\ntwo.\n\nthree.\nfour.")
    config = BuildSettings(max_seq_length=64, seed=seed, held_out_fraction=[0.01, 0.5, 0.99][seed % 3])
    splits = builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)["splits"]
    assert splits["train"]["examples"] == splits["eval"]["examples"] == 1


def test_train_and_eval_documents_are_apart(corpus_file, tokenizer, build):
    folder = build()
    documents = list(corpus.read_documents(str(corpus_file), split_sentences=True))
    texts = [" ".join(str(i) for sentence in document for i in tokenizer.encode(sentence)) for document in documents]
    manifest = files.read_json(folder / "manifest.json")
    used = {}
    for split in ("train", "eval"):
        used[split] = set()
        for record in tf.data.TFRecordDataset(str(folder / manifest["splits"][split]["files"][0]["name"])):
            feature = tf.train.Example.FromString(record.numpy()).features.feature
            values = {name: list(value.int64_list.value) for name, value in feature.items()}
            ids = values["input_ids"]
            count = int(sum(feature["masked_lm_weights"].float_list.value))
            for position, token in zip(values["masked_lm_positions"][:count], values["masked_lm_ids"]):
                ids[position] = token
            first = " ".join(map(str, ids[1 : ids.index(tokenizer.sep_id)]))
            holding = [number for number, text in enumerate(texts) if first in text]
            assert holding
            used[split].update(holding if len(holding) == 1 else [])
        assert len(used[split]) > 0.5 * manifest["splits"][split]["documents"]
    assert not used["train"] & used["eval"]


def test_lines_are_documents_of_their_own(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("one. Two.\nThree. Four.\nFive. Six.")
    config = BuildSettings(max_seq_length=64, seed=1, held_out_fraction=0.5, split_sentences=True, line_documents=True)
    manifest = builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)
    assert sum(split["documents"] for split in manifest["splits"].values()) == 3
    assert manifest["line_documents"]
    assert "line_documents" not in BuildSettings(seed=1).described()
    with pytest.raises(UserError, match="--line_documents leaves no two sentences for --pair_task=sop; add --split_s"):
        BuildSettings(line_documents=True)
    assert BuildSettings(line_documents=True, pair_task="none").line_documents


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "holds no document"),
        ("\n\n \n", {}, "holds no document"),
        ("one line.\n\nanother.", {"held_out_fraction": 0}, "give no training example.*--split_sentences"),
        ("one.\ntwo.\nthree.", {}, "held out"),
    ],
)
def test_a_corpus_without_examples_is_refused(tokenizer, tmp_path, text, settings, message):
    (tmp_path / "a.txt").write_text(text)
    config = BuildSettings(max_seq_length=64, **settings)
    with pytest.raises(UserError, match=message):
        builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)
    assert not list((tmp_path / "data").iterdir())
    # Nothing is left that stands in the way of the same folder with what is right.
    right = BuildSettings(max_seq_length=64, pair_task="none", held_out_fraction=0)
    (tmp_path / "a.txt").write_text("one line.\n\nanother.")
    assert builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, right, 1, False)


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


def test_one_document_a_file_is_one_stream(tokenizer, tmp_path):
    for number in range(400):
        (tmp_path / f"{number:03d}.txt").write_text("\n".join(f"Article {number} line {n}." for n in range(12)))
    for task, input_format in (("nsp", "segment-pair"), ("none", "full-sentences")):
        config = BuildSettings(max_seq_length=128, pair_task=task, input_format=input_format)
        manifest = builder.build(f"{tmp_path}/*.txt", tmp_path / task, tokenizer, config, 2, False)
        assert [len(split["files"]) for split in manifest["splits"].values()] == [1, 1]
        if task == "nsp":
            assert 0.45 < manifest["splits"]["train"]["label_1"] / manifest["splits"]["train"]["examples"] < 0.6
    (path,) = (tmp_path / "none").glob("train-*")
    seps = 0
    for record in tf.data.TFRecordDataset(str(path)).take(50):
        ids = tf.train.Example.FromString(record.numpy()).features.feature["input_ids"].int64_list.value
        seps += list(ids).count(tokenizer.sep_id) > 1
    assert seps > 25


def test_labels_on_one_side_are_said(tokenizer, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n".join(f"Line {n} of the only document." for n in range(900)))
    config = BuildSettings(max_seq_length=64, pair_task="nsp", held_out_fraction=0)
    builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)
    said = capsys.readouterr().out
    assert "warning: 0.0% of the" in said and "--pair_task=nsp" in said


def test_bad_lines_are_counted_listed_and_cost_nothing_that_is_done(tokenizer, tmp_path):
    rows = [json.dumps({"text": f"Line one of {n}.\nLine two of {n}.\nLine three of {n}."}) for n in range(600)]
    bad = {100: '{"text": ', 250: '{"text": null}', 400: '{"body": "x"}'}
    (tmp_path / "a.jsonl").write_text("\n".join(bad.get(n, row) for n, row in enumerate(rows)))
    config = BuildSettings(seed=1, max_seq_length=64, chunk_megabytes=0.01)

    def build(folder="data", allowed=0, workers=1):
        return builder.build(
            str(tmp_path / "a.jsonl"), tmp_path / folder, tokenizer, config, workers, False, max_bad_lines=allowed
        )

    with pytest.raises(UserError, match=r"line 101 is not JSON.*--max_bad_lines"):
        build()
    with pytest.raises(UserError, match=r"more than --max_bad_lines=2 bad lines"):
        build(allowed=2)
    # Whatever was read before is not read again.
    assert list((tmp_path / "data/.parts").glob("piece-*.json"))
    assert build(allowed=3)["bad_lines"] == 3
    listed = (tmp_path / "data/bad_lines.txt").read_text().splitlines()
    assert [line.split("' ")[1].split()[1] for line in listed] == ["101", "251", "401"]
    assert "null under 'text'" in listed[1]
    build("again", allowed=9, workers=2)
    assert contents(tmp_path / "again") == contents(tmp_path / "data")


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
    with files.locked(tmp_path), pytest.raises(UserError, match="another process is building"):
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


def test_many_shards_are_dealt_in_two_rounds(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(deal, "FAN_OUT", 3)
    builder.build(str(corpus_file), tmp_path / "data", tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    # The pieces are larger in the list of inputs only.
    ours, theirs = contents(tmp_path / "data"), contents(one_worker)
    records = {name for name in theirs if ".tfrecord" in name}
    assert records and all(ours[name] == theirs[name] for name in records)


def test_equal_documents_do_not_fill_one_shard():
    hashes = np.zeros(10_000, np.int64)
    counts = np.bincount(Deal(1, 10, 0, 0.0).shard_of(hashes), minlength=10)
    assert counts.min() > 800


def test_every_shard_is_a_fair_sample(tokenizer, tmp_path):
    words = ["qqqq"] * 1500 + ["zzzz"] * 1500
    rows = [json.dumps({"text": f"{word} {n} one.\nAnd two.\nAnd three."}) for n, word in enumerate(words)]
    (tmp_path / "sorted.jsonl").write_text("\n".join(rows))
    config = BuildSettings(max_seq_length=64, masking="dynamic", held_out_fraction=0, chunk_megabytes=0.02)
    builder.build(str(tmp_path / "sorted.jsonl"), tmp_path / "data", tokenizer, config, 1, False)
    first = set(tokenizer.encode("qqqq")) - set(tokenizer.encode("zzzz"))
    shares = []
    for path in (tmp_path / "data").glob("train-*"):
        found = [
            bool(first & set(tf.train.Example.FromString(r.numpy()).features.feature["input_ids"].int64_list.value))
            for r in tf.data.TFRecordDataset(str(path))
        ]
        shares.append(np.mean(found) - 0.5)
        assert abs(shares[-1]) < 4.5 * np.sqrt(0.25 / len(found))
    assert len(shares) > 5


def test_the_size_of_a_shard_grows_with_the_corpus():
    config = BuildSettings()
    sizes = {text: config.for_corpus(text).chunk_megabytes for text in (0, 10**6, 8 * 10**9, 10**10, 10**12, 10**14)}
    assert list(sizes.values()) == [8, 8, 8, 16, 160, 160]
    large = Deal.of(config.for_corpus(10**12), 10**12)
    assert 5500 < large.train < 6000 and 600 < large.eval < 650
    assert large.groups <= 256


def test_ctrl_c_ends_the_workers_and_loses_nothing(one_worker, corpus_file, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "tfrecords.create_pretraining_data", f"--input={corpus_file}", "--seed=1"]
    command += [f"--output_dir={folder}", f"--tokenizer={tmp_path / 'tokenizer'}", "--max_seq_length=64"]
    command += ["--max_predictions_per_seq=10", "--split_sentences", "--chunk_megabytes=0.03", "--workers=2"]
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


def test_hard_text_is_built_and_read_back(tokenizer, tmp_path):
    hard = ["word " * 20_000, "no spaces" * 5000, "\0\0", "emoji 👩‍👩‍👧 . 一。二。", "", "x", "\ud83d", "a\rb\r\nc"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ["\n".join(hard), *hard, ""] * 3))
    config = BuildSettings(max_seq_length=128, held_out_fraction=0.2)
    manifest = builder.build(str(path), tmp_path / "data", tokenizer, config, 1, False)
    assert manifest["splits"]["train"]["examples"] > 500
    assert manifest["splits"]["train"]["documents"] + manifest["splits"]["eval"]["documents"] == 30


class TestScripts:
    def test_train_and_build(self, run_script, corpus_file, tmp_path):
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
    def test_one_line_and_a_status(self, run_script, corpus_file, tokenizer, tmp_path, module, options, message):
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
