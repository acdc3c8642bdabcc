"""An index of texts: what it finds, how it is saved, and whom it answers."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf import open_index, search
from albert_tf.embeddings import index as indices
from albert_tf.embeddings.index import Index, index_folder
from tests.albert_tf.search_model import TEXTS, made
from tests.albert_tf.tiny import table
from tests.refusals import refused
from tfrecords.answers.numbers import unit

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("models") / "model", prompts={"query": "the ", "passage": "a "})


@pytest.fixture(scope="module")
def loaded(folder):
    return albert_tf.load(folder)


def expected(loaded, query, top):
    scores = loaded.encode_document(TEXTS) @ loaded.encode_query(query)
    return [(int(n), pytest.approx(float(scores[n]), abs=1e-5)) for n in np.argsort(-scores, kind="stable")[:top]]


@pytest.mark.parametrize("kind", ["float32", "int8", "float32 by a graph"])
def test_the_nearest_texts_are_found_and_found_again_in_a_saved_index(loaded, tmp_path, kind, monkeypatch):
    if kind != "float32":
        pytest.importorskip("usearch", reason="needs the extra search")
    if kind.endswith("graph"):
        monkeypatch.setattr(indices, "EXACT_UP_TO", 10)
    made_now = loaded.index(TEXTS, vectors=kind.split()[0], batch_size=16)
    assert (made_now.graph is not None) == (kind != "float32")
    made_now.save(tmp_path / "index")
    opened = open_index(tmp_path / "index", loaded)
    for index in (made_now, opened):
        hits = index.search("bad film", top=5)
        assert [(hit.number, hit.score) for hit in hits] == expected(loaded, "bad film", 5)
        assert [hit.text for hit in hits] == [TEXTS[hit.number] for hit in hits]
        both = index.search(["bad film", "plot"], top=5)
        assert [hit.number for hit in both[0]] == [hit.number for hit in hits] and len(both[1]) == 5
        scores, numbers = index.nearest(loaded.encode_query(["plot"]), len(TEXTS) + 1, exact=True)
        assert numbers.shape == (1, len(TEXTS)) and np.all(np.diff(scores) <= 0)


def test_another_model_is_refused_and_one_distilled_from_it_is_answered(loaded, folder, tmp_path):
    loaded.index(TEXTS).save(tmp_path / "index")
    assert albert_tf.load(folder).identity() == loaded.identity()
    prompts = loaded.task["prompts"]
    for name, seed, task in (
        ("weights", 1, {"prompts": prompts}),
        ("prompts", 0, {"prompts": {"query": ""}}),
        ("distilled from another", 1, {"prompts": prompts, "distilled_from": "0" * 64}),
    ):
        other = albert_tf.load(made(tmp_path / name, seed, **task))
        with refused("is another model, not distilled from it"):
            open_index(tmp_path / "index", other)
    with refused("is another model"):
        open_index(tmp_path / "index", albert_tf.load(folder, depth=2))
    small = made(tmp_path / "small", 1, prompts=prompts, distilled_from=loaded.identity())
    index = open_index(tmp_path / "index", small := albert_tf.load(small))
    scores = loaded.encode_document(TEXTS) @ small.encode_query("bad")
    assert index.search("bad")[0].number == scores.argmax()
    # A model that is saved after training is no longer what was distilled.
    small.model.compile("sgd", "mse")
    small.model.fit(small.preprocessor()(TEXTS[:2]), np.zeros((2, 16)), verbose=0)
    small.save(tmp_path / "trained")
    with refused("is another model"):
        open_index(tmp_path / "index", albert_tf.load(tmp_path / "trained"))


def test_a_folder_of_other_files_stays_as_it_is(loaded, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for write in (loaded.index(TEXTS).save, index_folder):
        with refused(r"holds other files, such as 'config\.json'; choose an empty folder"):
            write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_damaged_index_is_refused_and_a_new_one_replaces_it(loaded, tmp_path):
    place = loaded.index(TEXTS).save(tmp_path / "index")
    lines = (place / "texts.jsonl").read_text().splitlines(keepends=True)
    for content in (lines[1:], [json.dumps("another text") + "\n", *lines[1:]], ['"']):
        (place / "texts.jsonl").write_text("".join(content))
        with refused("is damaged"):
            open_index(place, loaded)
    (place / "texts.jsonl").write_text("".join(lines))
    content = bytearray((place / "vectors.npy").read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (place / "vectors.npy").write_bytes(content)
    with refused("is damaged: its files are not those that were written"):
        open_index(place, loaded)
    for content in ("[1]", '{"model": 1}'):
        (place / "index.json").write_text(content)
        with refused("describes no index; remove it"):
            open_index(place, loaded)
    (place / "index.json").unlink()
    with refused("holds no finished index"):
        open_index(place, loaded)
    loaded.index(TEXTS[:3]).save(place)
    assert open_index(place, loaded).texts == list(TEXTS[:3])


def test_a_text_with_any_sign_that_ends_a_line_stays_one(folder, loaded, tmp_path):
    texts = ["bad\u2028film", "a\x85plot", "the\x0bfilm", "good"]
    assert open_index(loaded.index([*texts, "a\nb\rc"]).save(tmp_path / "saved"), loaded).texts == [*texts, "a\nb\rc"]
    (tmp_path / "texts.txt").write_bytes("\r\n".join(texts).encode())
    place = str(tmp_path / "index")
    search.main(search.SearchSettings(model=str(folder), text_file=str(tmp_path / "texts.txt"), index_dir=place))
    assert open_index(place, loaded).texts == texts


def test_the_command_builds_and_asks_and_keeps_and_prints_ids(folder, loaded, tmp_path, capsys):
    (tmp_path / "texts.csv").write_text("id,kind,text\n" + "".join(f"n{n},k,{text}\n" for n, text in enumerate(TEXTS)))
    asked = {"index_dir": str(tmp_path / "index"), "query": ("bad film",), "top": 2}
    flags = asked | {"model": str(folder), "text_file": str(tmp_path / "texts.csv")}
    nearest = [n for n, _ in expected(loaded, "bad film", 2)]
    for keep, names in (({}, ["id"]), ({"keep": "kind,id"}, ["kind", "id"])):
        search.main(search.SearchSettings(**flags, **keep))
        search.main(search.SearchSettings(**asked))
        wrote, *said = capsys.readouterr().out.splitlines()
        assert wrote.startswith(f"wrote {tmp_path}/index: 56 texts, float32 vectors")
        values = [{"id": f"n{n}", "kind": "k"} for n in nearest]
        rows = [[*(row[name] for name in names), TEXTS[n]] for n, row in zip(nearest, values)]
        assert [line.split("  ")[1:] for line in said] == 2 * rows
    hits = open_index(tmp_path / "index", loaded).search("bad film", top=2)
    assert [hit.kept for hit in hits] == [{"kind": "k", "id": f"n{n}"} for n in nearest]
    with refused("no column 'nr'; it has 'id', 'kind', 'text'; give --text_column=... and --keep"):
        search.main(search.SearchSettings(**flags, keep="nr"))
    in_memory = albert_tf.load(loaded.model, tokenizer=loaded.tokenizer)
    in_memory.index(TEXTS).save(tmp_path / "of memory")
    with refused("was built by a model in memory; save that"):
        search.main(search.SearchSettings(**asked | {"index_dir": str(tmp_path / "of memory")}))


REFUSED = table("""
    {}                                             | give --text_file=... to build an index, or --query=... to ask one
    {"text_file": "a.txt"}                         | needs --model
    {"query": ["a"], "vectors": "int8"}            | --vectors=int8 is for --text_file
    {"text_file": "a.txt", "model": "m", "top": 3} | --top=3 is for --query
    {"text_file": "no.txt", "model": "m"}          | --text_file=no.txt is no file
    {"query": [""]}                                | --query= is empty; give a text to search for
    {"query": ["a"]}                               | holds no finished index; build it by --model
""")


@pytest.mark.parametrize("options, said", REFUSED)
def test_wrong_flags_of_the_command(options, said, tmp_path):
    values = {name: tuple(value) if name == "query" else value for name, value in json.loads(options).items()}
    with refused(said):
        search.main(search.SearchSettings(index_dir=str(tmp_path / "index"), **values))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_equal_texts_do_not_break_the_graph(loaded, kind, monkeypatch, capsys):
    """Each is found, others are found as well, and the recall is measured and said."""
    pytest.importorskip("usearch", reason="needs the extra search")
    monkeypatch.setattr(indices, "EXACT_UP_TO", 10)
    random = np.random.default_rng(0)
    vectors = unit(random.normal(size=(400, 16)).astype("float32"))
    vectors[::2] = vectors[0] + random.normal(scale=1e-8, size=(200, 16))
    index = Index(loaded, ["text"] * 400, vectors, kind)
    assert "of the 10 nearest texts of 200 sampled ones" in capsys.readouterr().err and len(index.graph) <= 210
    found, numbers = index.nearest(vectors, 20)
    assert np.mean(found >= index.nearest(vectors, 20, exact=True)[0][:, -1:] - 1e-5) > 0.99
    assert all(len(set(row)) == 20 for row in numbers.tolist())


def test_without_usearch_nothing_is_encoded(loaded, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(indices, "_encoded", None)
    with refused("int8 vectors needs usearch: pip install .*search"):
        loaded.index(TEXTS, vectors="int8")


def test_what_an_index_does_not_take(loaded):
    vectors = np.eye(4, 16, dtype="float32")
    with refused("vectors 'int4' are unknown"):
        Index(loaded, "abcd", vectors, "int4")
    index = Index(loaded, "abcd", vectors)
    for top in (0, 1.5, True):
        with refused("must be a whole number of 1 or more"):
            index.nearest(vectors, top)
    with refused(r"vectors of shape \(4, 3\) do not fit"):
        index.nearest(vectors[:, :3])
    with refused("not finite"):
        index.nearest(vectors * np.nan)
    with refused("there are no texts"):
        loaded.index([])
