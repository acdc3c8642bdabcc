"""A LiteRT version stands in the place of what `albert_tf.load` returns: forms, answers, warnings and refusals."""

import os
import shutil
import subprocess
import sys
import threading
from operator import methodcaller

import numpy as np
import pytest

from serving.lite import LiteModel, description
from serving.lite.interpreters import Interpreters
from serving.litert import agreement
from serving.litert.trial_lines import ordinary
from tests.column import Column
from tests.refusals import refused
from tests.serving.conftest import LABELLED
from tfrecords.base.errors import UserError

CONTEXT = (
    "paris is the capital of france. two thousand cats sat on the fine mat of the river, the river runs in paris. " * 2
)
WORDS = ["the cat sat", "Paris, France!", "a", "café 2,000 [SEP] thou-sand", "x" * 300 + " film"]
NEAR = 2e-4


def assert_alike(expected, found):
    if isinstance(expected, (float, np.ndarray)):
        np.testing.assert_allclose(found, expected, atol=NEAR)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
        assert not isinstance(expected, np.ndarray) or isinstance(found, np.ndarray)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_alike(expected[name], found[name])
    elif isinstance(expected, (list, tuple)):
        assert (type(found), len(found)) == (type(expected), len(expected))
        for one, other in zip(expected, found):
            assert_alike(one, other)
    else:
        assert (type(found), found) == (type(expected), expected)


def outcome(call):
    try:
        return call()
    except UserError as error:
        return str(error)


@pytest.mark.parametrize(
    "head, family, task, columns",
    [
        ("classifier", "albert", LABELLED, (WORDS,)),
        ("classifier", "roberta", LABELLED | {"inputs": ["one", "two"]}, (WORDS, [*WORDS[1:], "the " * 60])),
        ("regressor", "albert", None, (["the " * 60, *WORDS], ["paris", *reversed(WORDS)])),
        ("token classifier", "roberta", None, ([*WORDS, ["New York", " a", "", "the"], "sat " * 60],)),
        ("spans", "albert", {"null_threshold": 0.5}, (["what is the capital of france?", "who"], [CONTEXT, " "])),
        ("joint spans", "sentencepiece", None, (["what is the capital?", "where"], [CONTEXT, CONTEXT[::-1]])),
        ("pretrainer", "sentencepiece", None, (["the [MASK] sat", "[MASK] [MASK]", "on [MASK] " + "the " * 60],)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_predictions_are_those_of_the_loaded_model(both, head, family, task, columns):
    loaded, lite = both(head, family, task)
    expected = loaded.predict(*columns)
    assert_alike(expected, lite.predict(*columns))
    one = [column[0] for column in columns]
    if isinstance(one[0], str):
        assert_alike(loaded.predict(*one), lite.predict(*one))
    assert lite.predict(*([] for _ in columns)) == loaded.predict(*([] for _ in columns)) == []
    wrong = [
        (columns[0],) * 2,
        (columns[0],),
        (["a"], ["a", "b"]),
        (["a"], "a"),
        ([None],),
        ("a", 3),
        (["a", 3.0],),
        ([],),
    ]
    for texts in wrong:
        assert_alike(*(outcome(lambda: model.predict(*texts)) for model in (loaded, lite)))  # noqa: B023
    for batch_size in (0, "3", 1.5):
        with refused("batch_size"):
            lite.predict(*columns, batch_size=batch_size)
    assert_alike(outcome(lambda: loaded.encode(columns[0][:1])), outcome(lambda: lite.encode(columns[0][:1])))


def test_vectors_are_those_of_the_loaded_model_in_every_form(vectors):
    loaded, lite = vectors
    for texts in (WORDS, "a cat", [], iter(()), np.array([], str), np.array(WORDS), (text for text in WORDS)):
        kept = list(texts) if not isinstance(texts, (str, list, np.ndarray)) else texts
        assert_alike(loaded.encode(kept), lite.encode(iter(kept) if isinstance(kept, list) else kept))
    assert_alike(loaded.encode_query("cat"), lite.encode_query("cat"))
    assert_alike(loaded.encode_document(["cat"], normalize=False), lite.encode_document(["cat"], normalize=False))
    assert_alike(loaded.encode("cat", prompt_name="passage"), lite.encode("cat", prompt_name="passage"))
    assert_alike(loaded.predict(WORDS), lite.predict(WORDS))
    assert_alike(loaded.similarity(WORDS, ["cat"]), lite.similarity(WORDS, ["cat"]))
    assert_alike(loaded.similarity("a", "cat"), lite.similarity("a", lite.encode("cat")))
    assert_alike(loaded.similarity([], ["a"]), lite.similarity([], ["a"]))


def test_a_column_is_read_by_position(vectors):
    _, lite = vectors
    column = Column(["the river", "a cat", "paris"], [1, 2, 0])
    assert np.array_equal(lite.encode(column), lite.encode(list(column)))


@pytest.mark.parametrize(
    "call",
    [
        *(methodcaller("encode", texts) for texts in (["a", None], ["a", float("nan")], ["a", 3], None, 3, {"a"})),
        *(methodcaller("encode", texts) for texts in ({"a": "b"}, np.ones((2, 2)), [b"\xff"], [["a"]])),
        *(methodcaller("encode", ["a"], prompt_name="none"), methodcaller("encode", ["a"], normalize=1)),
        *(methodcaller("predict", ["a"], second) for second in (["b"], "b")),
        methodcaller("similarity", np.ones((2, 3)), np.ones((2, 4))),
    ],
)
def test_refusals_of_vectors_are_alike(vectors, call):
    messages = [outcome(lambda: call(model)) for model in vectors]  # noqa: B023
    assert isinstance(messages[0], str) and messages[0] == messages[1]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 18, 19, 40])
def test_texts_are_cut_alike_with_the_same_warning(vectors, count, caplog):
    said = []
    for model in vectors:
        for call in (model.encode, model.encode_query):
            call(["cat " * count, "a"])
        said.append([record.getMessage() for record in caplog.records])
        caplog.clear()
    assert said[0] == said[1] and bool(said[0]) == (count > 16)
    loaded, lite = vectors
    assert_alike(loaded.encode_query("cat " * count), lite.encode_query("cat " * count))


@pytest.mark.parametrize("text", ["cat " * 10**6, "x" * 10**6, " " * 10**6 + "cat", "a中" * 10**6], ids=len)
def test_texts_of_millions_of_characters_are_answered_as_their_beginning(vectors, text):
    for model in vectors:
        np.testing.assert_array_equal(model.encode(text), model.encode(text.strip()[:1000]))


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_a_rows_bits_are_its_own(both, compute):
    _, lite = both("embedder", compute=compute)
    texts = [" ".join(WORDS[:3] * 40)[: 3 + 7 * number] for number in range(30)]
    together = lite.encode(texts)
    assert np.array_equal(together, [lite.encode(text) for text in texts])
    assert np.array_equal([*together[::-1]] * 2, lite.encode(texts[::-1] * 2))
    content = (lite.folder / description.MODEL_FILE).read_bytes()
    rows = [
        {"input_ids": np.arange(5, 5 + size, dtype=np.int32), "lengths": np.array(size, np.int32)} for size in (9, 40)
    ]
    answers = [Interpreters(content, count).run(rows) for count in (1, 2, 3)]
    for one in answers[1:]:
        assert all(np.array_equal(a["embedding"], b["embedding"]) for a, b in zip(answers[0], one))
    # Those that a lone row starts leave a core to its caller.
    cores, before = os.sched_getaffinity(0), os.listdir("/proc/self/task")
    Interpreters(content, len(cores)).run(rows[:1])
    assert os.sched_getaffinity(0) == cores
    for task in {*os.listdir("/proc/self/task")}.difference(before):
        assert os.sched_getaffinity(int(task)) < cores


def test_answers_belong_to_the_caller_and_threads_do_not_disturb_each_other(vectors):
    _, lite = vectors
    batches = [WORDS[:size] for size in (1, 2, 5)] * 2
    right = [lite.encode(batch) for batch in batches]
    wrong = []

    def ask(number):
        for _ in range(5):
            found = lite.encode(batches[number])
            wrong.extend([number] * (not np.array_equal(found, right[number])))
            found += 1
        if number == 0:
            try:
                lite.encode([None])
            except UserError:
                return
            wrong.append("no refusal")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


IN_CHILDREN = """
import os, sys, threading
import numpy as np
from serving.lite import LiteModel

def in_child(answer):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, answer().tobytes())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        return file.read()

model, texts = LiteModel(sys.argv[1]), ["the cat", "a", "the cat sat on the river"]
first = in_child(lambda: model.encode(texts))
right = model.encode(texts).tobytes()
found = {"before": first, "after": in_child(lambda: model.encode(texts))}
found["alone"] = in_child(lambda: np.stack([model.encode(text) for text in texts]))
found["grandchild"] = in_child(lambda: np.frombuffer(in_child(lambda: model.encode(texts)), "float32"))
done = threading.Event()
thread = threading.Thread(target=lambda: [model.encode(texts) for _ in iter(done.is_set, True)])
thread.start()
found |= {number: in_child(lambda: model.encode(texts)) for number in range(4)}
done.set()
thread.join()
modules = {name.split(".")[0] for name in sys.modules} & {"tensorflow", "keras", "numba", "albert_tf"}
print([name for name, bytes_ in found.items() if bytes_ != right], modules)
if os.fork() == 0:
    sys.exit()  # Python's usual end, which frees what is left of the parent.
os.wait()
"""


def test_forks_and_imports(vectors):
    _, lite = vectors
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "true"}
    # Python 3.12 warns of threads at each fork.
    command = [sys.executable, "-Wignore", "-c", IN_CHILDREN, str(lite.folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    # LiteRT's own line is not there.
    assert (run.stdout, run.stderr) == ("[] set()\n", "")


def test_a_file_that_changes_under_an_open_model_is_met_by_the_next(vectors, tmp_path):
    lite = LiteModel(shutil.copytree(vectors[1].folder, tmp_path, dirs_exist_ok=True))
    before = lite.encode("the cat sat")
    path = lite.folder / description.MODEL_FILE
    os.truncate(path, 1000)
    assert np.array_equal(lite.encode("the cat sat"), before)
    assert lite.encode(["the", "a cat", "a cat sat on the river"]).shape == (3, 16)
    with refused("SHA-256"):
        LiteModel(lite.folder)


def test_the_newest_version_of_a_folder_is_opened(vectors):
    assert LiteModel(vectors[1].folder.parent).folder == vectors[1].folder


def test_a_folder_without_a_version_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with refused(r"litert\.json"):
            LiteModel(folder)


def test_numbers_that_are_not_finite_are_refused(vectors, monkeypatch):
    _, lite = vectors
    monkeypatch.setattr("serving.lite.interpreters.np.isfinite", lambda values: np.zeros(1, bool))
    with refused("embedding holds NaN or infinity"):
        lite.encode("a")


def test_lines_that_judge_a_model_are_of_its_vocabularys_words(tokenizer):
    lines = ["the cat sat", "the \u13a0 sat", "zyx wvu", "a film", "", "parisparisparis"]
    assert ordinary(tokenizer, lines) == ["the cat sat", "a film"]
    assert ordinary(tokenizer, lines[1:3]) == lines[1:3]


@pytest.mark.parametrize(
    "made",
    [
        ("classifier", "albert", LABELLED), ("regressor",), ("token classifier", "roberta"), ("embedder",),
        ("spans", "albert", {"null_threshold": 0.5}), ("multiple choice",), ("pretrainer",)
    ]
)  # fmt: skip
@pytest.mark.few(3)
def test_eight_bits_are_judged_for_each_kind_of_answer(both, monkeypatch, made):
    loaded, model = both(*made)
    monkeypatch.setattr(agreement, "trial_lines", lambda tokenizer: ["the cat", "a", *WORDS[:3], CONTEXT])
    is_near, said = agreement.agrees(loaded, model.folder)
    assert is_near and ("change 0 of" in said or "1.000" in said)
    run = LiteModel.run

    def other(*asked):
        return [{name: -np.flip(values) for name, values in one.items()} for one in run(*asked)]

    monkeypatch.setattr(LiteModel, "run", other)
    assert not agreement.agrees(loaded, model.folder)[0]
