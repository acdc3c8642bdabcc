"""Files of rows through a small SavedModel and a model server without a model: order, bad rows, kills, other jobs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from serving.score import job, models, rows
from serving.score.__main__ import ScoringSettings, main
from serving.score.models import ModelSource
from serving.score.worker import ScoringWorker
from serving.wire import protos
from tests.conftest import ROOT
from tests.refusals import refused
from tests.serving.gateway.conftest import LABELS, LONGEST, cut_left, logits, vector
from tests.serving.score.conftest import Echo, read_lines, read_rows
from tfrecords.base import files
from tfrecords.base.parts import Parts

TEXTS = ["a fine film", "", "naïve café ☕", "long " * 40, "x", 'a "quoted" one\\', "tab\tand\u2028more"]


class Lengths(tf.Module):
    """Bytes and halves of them; refuses whatever says poison."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def answer(self, text):
        good = tf.logical_not(tf.strings.regex_full_match(text, ".*poison.*"))
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(good), ["poison is not taken"])]):
            size = tf.cast(tf.strings.length(text), tf.float32)
        words = tf.strings.split(text, " ").to_tensor("")
        return {
            "label": tf.where(size > 5, "long", "short"), "probabilities": tf.stack([size, size / 2], axis=1),
            "words": words, "places": tf.ones_like(words, tf.int32) * tf.range(tf.shape(words)[1])
        }  # fmt: skip


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    base = tmp_path_factory.mktemp("lengths")
    module = Lengths()
    tf.saved_model.save(module, str(base / "3"), signatures=module.answer)
    return ModelSource(str(base))


@pytest.fixture
def source_of(fake_server):
    """source_of(kind): a fake model of that kind behind a server."""
    return lambda kind: ModelSource("default", fake_server(kind)[1].target)


@pytest.fixture
def inputs(tmp_path):
    """rows/a.jsonl with bad rows between, rows/deep/b.txt of the same texts."""
    folder = tmp_path / "rows"
    (folder / "deep").mkdir(parents=True)
    lines = [json.dumps({"id": n, "text": text}) for n, text in enumerate(TEXTS)]
    lines[2:2] = ["{broken", '{"id": 7}', '{"text": 5}', "", '["text"]']
    (folder / "a.jsonl").write_text("\n".join(lines))
    (folder / "deep" / "b.txt").write_text("\n".join(text.replace("\u2028", " ") for text in TEXTS) + "\n")
    return f"{folder}/a.jsonl,{folder}/deep/*.txt"


@pytest.fixture
def score_text(tmp_path):
    """score_text(text, source, **options): the manifest and the rows of answers."""

    def score(text, source, name="in.txt", **options):
        (tmp_path / name).write_text(text)
        manifest = job.score(str(tmp_path / name), tmp_path / "out", source, **options)
        return manifest, read_lines((tmp_path / "out" / name).with_suffix(".jsonl"))

    return score


@pytest.fixture
def run(lengths, inputs, tmp_path):
    """run(folder, **options): the manifest of the answers to all inputs."""
    return lambda folder, **options: job.score(inputs, tmp_path / folder, lengths, **options)


def test_every_line_has_its_answer_in_order(run, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    manifest = run("whole", keep=("id",))
    assert (manifest["rows"], manifest["bad_rows"]) == (len(TEXTS) * 2 + 5, 5)
    found = read_lines(whole / "a.jsonl")
    known = "not a JSON object", "'text' is missing", "'text' is not a string", "not a JSON", "not a JSON"
    for words, row in zip(known, found[2:7], strict=True):
        assert words in row["error"]
    good = found[:2] + found[7:]
    sizes = [len(text.encode()) for text in TEXTS]
    assert [row["id"] for row in good] == list(range(len(TEXTS)))
    assert [row["probabilities"] for row in good] == [[size, size / 2] for size in sizes]
    assert [row["label"] for row in good] == ["long" if size > 5 else "short" for size in sizes]
    assert len(read_lines(whole / "deep" / "b.jsonl")) == len(TEXTS)
    bad = read_lines(whole / "bad_rows.jsonl")
    assert {Path(one["file"]).name for one in bad} == {"a.jsonl"} and [one["line"] for one in bad] == [3, 4, 5, 6, 7]
    assert [one["row"] for one in bad] == ["{broken", '{"id": 7}', '{"text": 5}', "", '["text"]']
    # In many pieces and small batches the same.
    monkeypatch.setattr(job, "PIECE_BYTES", 40)
    run("pieces", keep=("id",), max_batch_tokens=9)
    for name in ("a.jsonl", "deep/b.jsonl", "bad_rows.jsonl"):
        assert (whole / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()
    assert not (whole / ".parts").exists()


def test_other_outputs_without_what_rows_are_filled_up_with(run, tmp_path):
    run("out", outputs=("words", "places"))
    for row, text in zip(read_lines(tmp_path / "out" / "deep" / "b.jsonl"), TEXTS):
        words = text.replace("\u2028", " ").rstrip().split(" ")
        assert row == {"words": [w for w in words if w or len(words) > 1], "places": list(range(len(row["words"])))}


def test_a_row_that_the_model_refuses_fails_alone(lengths, score_text, tmp_path):
    manifest, found = score_text("good\npoison\nfine\n" * 5, lengths)
    assert manifest["bad_rows"] == 5 and [row.get("label") for row in found] == ["short", None, "short"] * 5
    assert "the model refused it" in found[1]["error"] and "poison" in found[1]["error"]
    bad = read_lines(tmp_path / "out" / "bad_rows.jsonl")
    assert [(one["line"], one["row"]) for one in bad] == [(line, "poison") for line in (2, 5, 8, 11, 14)]


def test_it_says_how_much_of_the_texts_was_not_read(lengths, source_of, score_text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(job, "PIECE_BYTES", 8)
    manifest, found = score_text("good\n" * 3 + "word " * 40 + "\n", source_of("telling classifier"))
    counts = {"truncated_rows": 1, "text_tokens": 43, "truncated_tokens": 40 - (LONGEST - 2)}
    assert manifest == manifest | counts
    assert "truncated: 25.0% of the rows, 60.5% of their tokens were not read" in capsys.readouterr().out
    assert found[0].keys() == {"label", "probabilities"}
    assert "truncated_rows" not in job.score(str(tmp_path / "in.txt"), tmp_path / "other", lengths)
    assert "this signature does not tell which texts were truncated" in capsys.readouterr().out


def test_parquet_has_the_same_answers(run, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    run("json", keep=("id",))
    monkeypatch.setattr(job, "PIECE_BYTES", 60)
    run("table", keep=("id",), format="parquet")
    table = parquet.read_table(tmp_path / "table" / "a.parquet")
    assert [str(one.type) for one in table.schema] == ["string", "string", "list<element: float>", "string"]
    expected = read_lines(tmp_path / "json" / "a.jsonl")
    names = ("id", "label", "probabilities", "error")
    for row, one in zip(table.to_pylist(), expected, strict=True):
        assert row == {name: one.get(name) for name in names} | {"id": None if "error" in one else str(one["id"])}


def test_the_same_job_is_left_and_another_refused(run, tmp_path, capsys):
    table = tmp_path / "out" / "a.jsonl"
    run("out")
    before = table.stat().st_mtime_ns
    run("out")
    assert "is complete already: answers to 19 rows of 2 files, 5 of them bad" in capsys.readouterr().out
    assert table.stat().st_mtime_ns == before
    with refused(r"answers of another job \(its max_batch_tokens was another\)"):
        run("out", max_batch_tokens=7)
    run("out", max_batch_tokens=7, overwrite=True)
    # A table that was lost is made again.
    table.unlink()
    run("out", max_batch_tokens=7)
    assert len(read_lines(table)) == 12


@pytest.mark.parametrize(
    "options, message",
    [
        ({"outputs": ("no",)}, "--outputs=no is none of the model's; it gives label, places, probabilities"),
        ({"fields": ("a", "b")}, "--fields=a,b must name a field for each of text"),
        ({"keep": ("label",)}, "--keep=label has the name of a column"),
    ],
)
def test_what_the_model_has_not_is_said_before_the_work(run, options, message):
    with refused(message):
        run("out", **options)


def test_two_files_of_one_name_are_refused(lengths, tmp_path):
    for name in ("a.txt", "a.jsonl"):
        (tmp_path / name).write_text("")
    with refused(r"would both become 'a\.jsonl'"):
        job.score(f"{tmp_path}/a.*", tmp_path / "out", lengths)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=9).map(str.encode)),
    st.integers(1, 30),
)
def test_pieces_hold_every_line_once(tmp_path_factory, lines, size):
    path = tmp_path_factory.getbasetemp() / "pieces.txt"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert [row.texts[0] for row in read_rows(path, size)] == lines


def test_lines_that_are_too_long_are_bad_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LONGEST_LINE", 10)
    path = tmp_path / "rows.txt"
    path.write_bytes(b"short\n" + b"x" * 55 + b"\nexactly 10\n" + b"y" * 11)
    for size in (7, 1000):
        found = read_rows(path, size)
        assert [row.texts for row in found] == [(b"short",), (), (b"exactly 10",), ()]
        assert found[1].error == "the line is longer than 10 bytes" and found[1].line == b"x" * 10


def test_a_worker_opens_its_model_once(tmp_path, monkeypatch):
    opened = []

    class Slow(Echo):
        def __init__(self, source):
            opened.append(source)
            time.sleep(0.2)

    monkeypatch.setattr(models, "_served", Slow)
    (tmp_path / "in.txt").write_text("two\nbatches\n")
    (piece,) = rows.cut([tmp_path / "in.txt"], 1000)
    worker = ScoringWorker(ModelSource("slow", "h:1"), max_batch_tokens=1, parts=Parts(tmp_path))
    (tmp_path / ".parts").mkdir()
    worker.score("part", piece, ("text",), Echo.outputs)
    assert [row["label"] for row in read_lines(tmp_path / ".parts" / "part.jsonl")] == ["two", "batches"]
    assert len(opened) == 1


def test_pairs_by_the_names_of_their_fields(source_of, score_text):
    pairs = [{"q": f"who {n}", "d": f"he {n}"} for n in range(9)]
    options = {"name": "in.jsonl", "fields": ("q", "d"), "outputs": ("label",)}
    _, found = score_text("\n".join(map(json.dumps, pairs)), source_of("cross-encoder"), **options)
    labels = [LABELS[int(logits([one["q"].encode(), one["d"].encode()]).argmax())].decode() for one in pairs]
    assert [row["label"] for row in found] == labels


LONG = "z a b c d e f g h i j k l m n o"


@pytest.fixture
def command(source_of, tmp_path):
    """command(kind, **flags): what the command does with two lines."""

    def run(kind, **flags):
        (tmp_path / "in.txt").write_text(f"{LONG}\na\n")
        where = {"input": str(tmp_path / "in.txt"), "output_dir": str(tmp_path / "out"), "model": "default"}
        main(ScoringSettings(**where, target=source_of(kind).target, **flags))

    return run


def test_scoring_asks_for_options(command, tmp_path):
    command("prompted embedder", prompt_name="query", truncate_left=True)
    expected = [vector(cut_left(f"query: {LONG}".encode())), vector(b"query: a")]
    found = [row["embedding"] for row in read_lines(tmp_path / "out" / "in.jsonl")]
    assert_allclose(found, expected, rtol=1e-6)
    manifest = files.read_json(tmp_path / "out" / "manifest.json")
    assert manifest["truncated_rows"] == 1 and manifest["job"]["options"]["prompt_name"] == "query"
    # By others it is another job.
    with refused("its options was another"):
        command("prompted embedder", prompt_name="passage", truncate_left=True)


@pytest.mark.parametrize(
    "kind, flags, message",
    [
        ("embedder", {"prompt_name": "query"}, "--prompt_name: the model has no signature 'with_options'"),
        ("optional classifier", {"prompt_name": "query"}, "--prompt_name is not known to the model; it takes text"),
        (
            "embedder", {"truncate_left": True, "signature": "tokenize"},
            "--truncate_left are for the signature serving_default"
        )
    ]
)  # fmt: skip
def test_scoring_names_options_that_cannot_be(command, kind, flags, message):
    with refused(message):
        command(kind, **flags)


def test_killed_three_times_it_writes_the_same_bytes(fake_server, tmp_path):
    (model, server), path = fake_server("embedder"), tmp_path / "in.txt"
    path.write_text("".join(f"{'word ' * (n % 11)}{n}\n" for n in range(4000)))
    lines = "import sys; from serving.score import __main__ as main, job; job.PIECE_BYTES = 2000; main.run()"

    def start(folder):
        flags = [f"--target={server.target}", "--model=default", f"--input={path}", f"--output_dir={folder}"]
        command = [sys.executable, "-c", lines, *flags]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole, often = tmp_path / "whole", tmp_path / "often"
    said, errors = start(whole).communicate(timeout=120)
    assert "holds answers to 4,000 rows of 1 files" in said, errors
    for _ in range(3):
        while model.asked.acquire(blocking=False):
            pass
        process = start(often)
        # Each piece is a batch or two.
        for _ in range(8):
            assert model.asked.acquire(timeout=60), process.communicate()
        process.kill()
        process.communicate(timeout=60)
    assert 0 < len(list((often / ".parts").glob("*.json"))) < 60, "some pieces are there, and not all"
    said, errors = start(often).communicate(timeout=120)
    assert "holds answers to 4,000 rows" in said, errors
    assert (often / "in.jsonl").read_bytes() == (whole / "in.jsonl").read_bytes()
    assert sorted(one.name for one in often.iterdir()) == ["bad_rows.jsonl", "in.jsonl", "manifest.json"]


@pytest.mark.parametrize("runner", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_several_workers_write_the_same_bytes(runner, source_of, tmp_path, monkeypatch):
    if runner == "ray":
        pytest.importorskip("ray")
    monkeypatch.setattr(job, "PIECE_BYTES", 200)
    source = source_of("embedder")
    (tmp_path / "in.txt").write_text("\n".join(TEXTS * 30))
    for name, options in (("one", {}), ("two", {"workers": 2, "runner": runner})):
        job.score(str(tmp_path / "in.txt"), tmp_path / name, source, **options)
    assert (tmp_path / "one" / "in.jsonl").read_bytes() == (tmp_path / "two" / "in.jsonl").read_bytes()


@pytest.fixture
def front(fake_server, front_of, tmp_path):
    """A Front of a classifier, the target of an `other` one with other scores, and `score` for a file of 120 rows."""
    (_, one), (model, other) = fake_server("classifier"), fake_server("classifier")
    model.sign = -1
    front = front_of(one.target)
    front.other = other.target
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:3] * 40))

    def score(**options):
        models.open_model.cache_clear()
        return job.score(str(tmp_path / "in.txt"), tmp_path / "out", ModelSource("m", front.target), **options)

    front.score = score
    return front


@pytest.mark.parametrize("moment", ["within a piece", "between two runs", "after the end"])
def test_no_table_is_of_two_models_under_one_number(front, tmp_path, monkeypatch, moment):
    monkeypatch.setattr(job, "PIECE_BYTES", 200)

    def change(method, request, context):
        if front.calls.count("Predict") == 4:
            if moment == "within a piece":
                front.point_at(front.other)
            elif moment == "between two runs":
                context.abort(grpc.StatusCode.INTERNAL, "it ends")

    front.rule = change
    if moment == "between two runs":
        with refused("it ends"):
            front.score()
        front.rule = lambda *_: None
    if moment == "after the end":
        front.score()
    if moment != "within a piece":
        front.point_at(front.other)
    for _ in range(2):
        with refused(r"has another model as version 1 of 'm'.*--overwrite begins anew"):
            front.score()
    front.score(overwrite=True)
    found = [row["probabilities"] for row in read_lines(tmp_path / "out" / "in.jsonl")]
    assert found[: len(found) - 3] == found[3:], "all of one model"


def test_a_version_that_is_gone_is_named(front):
    def go(method, request, context):
        # Behind the sample, the first batch.
        if front.calls.count("Predict") == 2:
            front.point_at(front.other, 2)

    front.rule = go
    metadata = protos.GetModelMetadataRequest

    def only_there(method, request, context):
        if method == "GetModelMetadata" and metadata.FromString(request).model_spec.version.value == 1:
            context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request: Specific(m, 1)")

    for _ in range(2):
        with refused("no version 1 of 'm' any more, with which this job began; --overwrite"):
            front.score()
        front.rule = only_there
    assert front.score(overwrite=True)["job"]["model"]["version"] == 2
