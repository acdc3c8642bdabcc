"""Records of a corpus: the same bytes from any number of workers, the manifest, what is refused, the scripts."""

import json

import pytest

from tests.refusals import refused
from tests.tfrecords.conftest import build_text, contents, features_of
from tfrecords import train_tokenizer
from tfrecords.base import files
from tfrecords.building import builder
from tfrecords.building.settings import BuildSettings
from tfrecords.tokenizers.loading import load_tokenizer


def documents_in(manifest):
    return sum(split["documents"] for split in manifest["splits"].values())


def test_manifest_tells_what_is_there(one_worker, tokenizer):
    manifest = files.read_json(one_worker / "manifest.json")
    assert manifest["tokenizer_sha256"] == tokenizer.sha256 == load_tokenizer(one_worker).sha256
    assert (manifest["vocab_size"], manifest["max_seq_length"]) == (1200, 64)
    listed = []
    for split in manifest["splits"].values():
        listed += split["files"]
        assert split["examples"] == sum(file["examples"] for file in split["files"])
    assert sorted(file["name"] for file in listed) == sorted(path.name for path in one_worker.glob("*.tfrecord"))
    for file in listed[::6]:
        path = one_worker / file["name"]
        found = path.stat().st_size, files.sha256(path), len(features_of(path))
        assert found == (file["bytes"], file["sha256"], file["examples"])
    # 79, and the parts of those that are longer than so small a chunk.
    assert 79 <= documents_in(manifest) < 90
    assert not (one_worker / ".parts").exists()


def test_several_workers_write_the_same_bytes(one_worker, build_corpus, tmp_path):
    build_corpus(tmp_path, workers=2)
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.slow
def test_ray_writes_the_same_bytes(one_worker, build_corpus, tmp_path):
    pytest.importorskip("ray")
    build_corpus(tmp_path, workers=2, runner="ray")
    assert contents(tmp_path) == contents(one_worker)


@pytest.mark.slow
def test_a_ray_worker_that_always_dies_ends_in_one_line(build_corpus, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(builder, "Worker", lambda *_: _Dying())
    with refused("is unfinished: a worker of Ray died each time"):
        build_corpus(tmp_path, workers=2, runner="ray")


class _Dying:
    """A worker that dies of its first task. Ray's processes do not know this module, so it says how to make one."""

    def __reduce__(self):
        return (eval, ("__import__('types').SimpleNamespace(read_piece=lambda *_: __import__('os')._exit(1))",))


def test_dupe_factor_gives_other_examples_of_the_same_documents(build):
    once, thrice = (files.read_json(build(**s) / "manifest.json")["splits"] for s in ({}, {"dupe_factor": 3}))
    for split in ("train", "eval"):
        assert thrice[split]["documents"] == once[split]["documents"]
        assert 2.5 < thrice[split]["examples"] / once[split]["examples"] < 3.5


def test_lines_are_documents_of_their_own(tokenizer, tmp_path):
    settings = {"held_out_fraction": 0, "split_sentences": True, "line_documents": True}
    manifest = build_text(tmp_path, "one. Two.\nThree. Four.\nFive. Six.", tokenizer, **settings)
    assert documents_in(manifest) == 3 and manifest["line_documents"]
    with refused("--line_documents leaves no two sentences for --pair_task=sop; add --split_s"):
        BuildSettings(line_documents=True)
    assert BuildSettings(line_documents=True, pair_task="none").line_documents


@pytest.mark.parametrize(
    "text, settings, message",
    [
        ("", {}, "of the 0 documents .* give no example: add documents"),
        (
            "one line.\n\nanother.",
            {"held_out_fraction": 0},
            "2 are for train records and give no example.*--split_sentences",
        ),
        (
            "one.\ntwo.\nthree.",
            {},
            "of the 1 documents of the corpus 0 are for eval records.*another --held_out_fraction",
        ),
        (
            "one.\n\ntwo.\n\nthree.",
            {"held_out_fraction": 0.99},
            "of the 3 documents of the corpus 0 are for train records",
        ),
        ("a.\nb.", {"objective": "permutation", "held_out_fraction": 0}, "a stream needs more tokens than --max_seq"),
    ],
)
def test_a_corpus_without_examples_is_refused(tokenizer, tmp_path, text, settings, message):
    with refused(message):
        build_text(tmp_path, text, tokenizer, **settings)
    assert not list((tmp_path / "data").iterdir())
    # Nothing is left that stands in the way of the same folder with what is right.
    assert build_text(tmp_path, "one line.\n\nanother.", tokenizer, pair_task="none", held_out_fraction=0)


def test_a_bad_line_ends_a_build_and_costs_nothing_that_is_done(tokenizer, tmp_path):
    rows = [json.dumps({"text": f"Line one of {n}.\nLine two of {n}.\nLine three of {n}."}) for n in range(600)]
    text = {"a.jsonl": "\n".join(row if n != 400 else '{"text": ' for n, row in enumerate(rows))}
    with refused(r"line 401 is not JSON"):
        build_text(tmp_path, text, tokenizer, chunk_megabytes=0.01)
    assert list((tmp_path / "data/.parts").glob("piece-*.json"))


def test_hard_text_is_built_and_read_back(tokenizer, tmp_path):
    hard = ["word " * 20_000, "no spaces" * 5000, "\0\0", "emoji 👩‍👩‍👧 . 一。二。", "", "x", "\ud83d", "a\rb\r\nc"]
    text = "\n".join(json.dumps({"text": text}) for text in ["\n".join(hard), *hard, ""] * 3)
    manifest = build_text(tmp_path, {"a.jsonl": text}, tokenizer, max_seq_length=128, held_out_fraction=0.4)
    assert manifest["splits"]["train"]["examples"] > 500
    assert documents_in(manifest) == 30


def test_the_commands_train_a_tokenizer_and_build_with_it(tiny_data):
    """As the fixture has them do, which says what each prints."""
    assert load_tokenizer(tiny_data).sha256 == load_tokenizer(tiny_data.parent / "spm.model").sha256


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe"])
def test_a_line_that_is_no_text_ends_the_training_of_a_vocabulary_in_one_line(tmp_path, kind):
    (tmp_path / "corpus.jsonl").write_text('{"text": "a cat"}\nnot json\n')
    settings = {"input": f"{tmp_path}/corpus.jsonl", "output_prefix": f"{tmp_path}/new/spm", "kind": kind}
    with refused(r"corpus\.jsonl' line 2 is not JSON"):
        train_tokenizer.main(train_tokenizer.TokenizerSettings(**settings, vocab_size=300))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("train_tokenizer --input={corpus} --output_prefix=/proc/nowhere/spm", "output folder"),
        ("create_pretraining_data --input={corpus} --tokenizer={data} --output_dir=/proc/nowhere", "output folder"),
        ("inspect_examples --input=nowhere", "matches no record file"),
    ],
)
def test_a_command_ends_in_one_line_and_a_status(run_module, corpus_file, tiny_data, arguments, message):
    ran = run_module(*f"tfrecords.{arguments}".format(corpus=corpus_file, data=tiny_data).split())
    assert ran.returncode == 1 and message in ran.stderr and ran.stderr.count("\n") == 1
