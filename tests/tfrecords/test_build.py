"""Records of a corpus: the same bytes from any number of workers, the manifest, what is refused, the scripts."""

import json

import pytest
import tensorflow as tf

from tests.tfrecords.conftest import SMALL_CHUNKS, contents
from tfrecords import builder, corpus
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.build_settings import BuildSettings
from tfrecords.tokenizers.loading import load_tokenizer


@pytest.fixture
def run_script(run_module):
    return lambda module, **options: run_module(module, *(f"--{name}={value}" for name, value in options.items()))


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
    assert not {"line_documents", "min_sentences"} & set(BuildSettings(seed=1).described())
    with pytest.raises(UserError, match="--line_documents leaves no two sentences for --pair_task=sop; add --split_s"):
        BuildSettings(line_documents=True)
    assert BuildSettings(line_documents=True, pair_task="none").line_documents


def test_documents_of_few_sentences_are_left_out(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("Heading.\nOne. Two.\nThree. Four. Five.\nHeading.\nSix. Seven.\nEight. Nine.")
    options = {"max_seq_length": 64, "seed": 1, "held_out_fraction": 0.25, "split_sentences": True}
    documents = {}
    for least in (1, 2, 4):
        config = BuildSettings(**options, line_documents=True, pair_task="nsp", min_sentences=least)
        folder = tmp_path / f"data{least}"
        if least == 4:
            with pytest.raises(UserError, match=r"no document of 4 sentences.* lower --min_sentences=4"):
                builder.build(str(tmp_path / "a.txt"), folder, tokenizer, config, 1, False)
            continue
        manifest = builder.build(str(tmp_path / "a.txt"), folder, tokenizer, config, 1, False)
        documents[least] = sum(split["documents"] for split in manifest["splits"].values())
    assert documents == {1: 6, 2: 4}
    with pytest.raises(UserError, match="min_sentences=0"):
        BuildSettings(min_sentences=0)


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


def test_hard_text_is_built_and_read_back(tokenizer, tmp_path):
    hard = ["word " * 20_000, "no spaces" * 5000, "\0\0", "emoji 👩‍👩‍👧 . 一。二。", "", "x", "\ud83d", "a\rb\r\nc"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ["\n".join(hard), *hard, ""] * 3))
    config = BuildSettings(max_seq_length=128, held_out_fraction=0.2, seed=1)
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
