"""Data sets that judge embeddings, their measures, and the command that runs them."""

import gzip
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from albert_tf import run_evaluation
from albert_tf.suites.scores import measure
from albert_tf.suites.sets import find_sets
from albert_tf.tasks.metrics import expected_scores
from tests.albert_tf.search_model import TEXTS, made
from tests.refusals import lines, refused
from tfrecords.answers.numbers import similarity

STS = "sentence1,sentence2,score\na,b,1.5\nb,c,3\nc,a,2\n"


def written(folder, **contents):
    """Writes files; `__` in a name is a point, `_IN_` a slash."""
    for name, content in contents.items():
        path = folder / name.replace("_IN_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return folder


class Letters:
    """An embedder of which every similarity is known: a text's vector points to the angle of its first letter."""

    asked = ()

    def encode(self, texts):
        angles = np.array([ord(text[0]) / 20 if text else 0.0 for text in texts])
        self.asked = [*self.asked, *texts]
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    encode_query = encode_document = encode

    def similarity(self, first, second):
        return similarity("cosine", first, second)


def test_a_table_is_known_by_its_columns(tmp_path):
    (found,) = find_sets(str(written(tmp_path / "mine", dev__csv=STS, README__md="", train__csv="any")))
    assert (found.name, found.kind, found.firsts, found.seconds) == ("mine", "STS", tuple("abc"), tuple("bca"))
    assert found.labels.tolist() == [1.5, 3, 2]


def test_published_folders_are_read(tmp_path):
    semeval = '5\tx "y\tb\n\tnot\tscored\n1.5\tc\td\n'
    written(tmp_path / "sts", b__test__tsv="3\te\tf\n", a__test__tsv=semeval)
    sick = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n1\ta\tb\t4.5\tX\n2\tc\td\t1\tY\n"
    written(tmp_path / "sick", SICK_test_annotated__txt__gz=sick, SICK_train__txt=sick)
    document = "<doc><docno>{0}</docno><title>t</title><text>t\n {0}</text></doc>".format
    queries = "<top><num> 7</num><title>\nfirst\n one</title></top><top><num> 9</num><title>second</title></top>"
    written(
        tmp_path / "cran", **{"cran__all__1400__xml__gz": document(1) + document(2), "cran__qry__xml": queries},
        cranqrel__trec__txt="1 0 2 1\n1 0 1 0\n2 0 1 1\n"
    )  # fmt: skip
    written(
        tmp_path / "beir", corpus__jsonl='{"_id": "a", "title": "T", "text": "x"}\n{"_id": "b", "text": "y"}\n',
        queries__jsonl='{"_id": "1", "text": "q"}\n', qrels_IN_test__tsv="query-id\tcorpus-id\tscore\n1\tb\t2\n"
    )  # fmt: skip
    beir, cranfield, of_sick, of_semeval = find_sets(str(tmp_path))
    assert beir.passages == {"a": "T x", "b": "y"} and beir.judgements == {"1": {"b": 2}}
    assert cranfield.queries == {"1": "first one", "2": "second"} and cranfield.passages["2"] == "t 2"
    assert cranfield.judgements == {"1": {"2": 1, "1": 0}, "2": {"1": 1}}
    assert (of_sick.firsts, of_sick.labels.tolist()) == (("a", "c"), [4.5, 1])
    assert of_semeval.parts == {"a": 2, "b": 1} and of_semeval.firsts == ('x "y', "c", "e")


REFUSALS = """
{"test.csv": "sentence1,sentence2,score\\na,b,1\\nc,d,2\\n", "fr/test.csv": "any"} => fr' is no file of a set for STS
{"test.csv": "sentence1,sentence2,score\\na,b,1\\nc,d,2\\n", "more.csv": ""} => more.csv' is no file of a set for STS
{"test.csv": "sentence1,sentence2,score\\na,b,\\nc,d,2\\n"} => line 2: score '' is not a number
{"test.csv": "sentence1,sentence2,score\\na,b,1\\nc,d,1\\n"} => every pair has the score 1
{"test.csv": "x,y\\na,b\\n"} => the columns 'x', 'y' are those of no set
{"rows.csv": "x,y\\na,b\\n"} => holds no test or dev table; it holds rows.csv
{"README.md": ""} => holds no data set
{"corpus.jsonl": "{}"} => holds no queries.jsonl
{"cranqrel.trec.txt": "1 0 1 1"} => holds no cran.all.1400.xml
{"corpus.jsonl": "{\\"_id\\": \\"a\\", \\"text\\": \\"x\\"}", "queries.jsonl": "{\\"_id\\": \\"1\\", \\"text\\": \\"x\\"}", "qrels/test.tsv": "query-id\\tcorpus-id\\tscore\\n1\\ta\\t0.5\\n"} => score 0.5 is no whole number
{"corpus.jsonl": "{\\"_id\\": \\"a\\", \\"text\\": \\"x\\"}", "queries.jsonl": "{\\"_id\\": \\"1\\", \\"text\\": \\"x\\"}", "qrels/test.tsv": "query-id\\tcorpus-id\\tscore\\n1\\ta\\t1\\n1\\ta\\t0\\n"} => line 3: 'a' is there before with another
"""  # noqa: E501


@pytest.mark.parametrize("line", lines(REFUSALS))
def test_what_is_no_set_is_named(tmp_path, line):
    contents, _, said = line.partition(" => ")
    for name, content in json.loads(contents).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with refused(said):
        find_sets(str(tmp_path))


def test_two_sets_of_one_name_are_refused(tmp_path):
    for place in ("a", "b"):
        written(tmp_path / place / "mine", test__csv=STS)
    with refused("two data sets are called 'mine'"):
        find_sets(f"{tmp_path}/a,{tmp_path}/b")
    (tmp_path / "empty").mkdir()
    with refused("empty holds no data set"):
        find_sets(f"{tmp_path}/a,{tmp_path}/empty")
    with refused("is no folder"):
        find_sets(f"{tmp_path}/c")


def test_equal_scores_count_at_their_expected_ranks():
    """Without ties the measures are trec_eval's; with them, their mean over all orders."""
    judge = pytest.importorskip("pytrec_eval").RelevanceEvaluator
    names = ["ndcg_cut_10", "recall_10", "recall_100", "map"]
    scores, relevance = np.array([3.0, 2, 2, 1, 1, 1]), np.array([0, 1, 0, 2, 0, 1])
    judged = {str(number): int(value) for number, value in enumerate(relevance)} | {"missing": 1}
    orders = []
    for first, second in itertools.product(itertools.permutations([0, 0.1]), itertools.permutations([0, 0.1, 0.2])):
        run = dict(zip(judged, (scores + [0, *first, *second]).tolist()))
        found = judge({"q": judged}, {"ndcg_cut.10", "recall.10,100", "map"}).evaluate({"q": run})["q"]
        orders.append([found[name] for name in names])
    figures = expected_scores(scores, relevance, sorted(judged.values(), reverse=True))
    assert list(figures.values()) == pytest.approx(np.mean(orders, axis=0))


def test_pairs_are_scored_over_all_parts(tmp_path):
    rows = "5\ta\ta\n1\ta\tz\n3\ta\tk\n"
    others = {"y__test__tsv": "2\ta\tb\n1\ta\tz\n", "unscored__test__tsv": "\ta\tb\n"}
    (data,) = find_sets(str(written(tmp_path, x__test__tsv=rows, **others)))
    found = measure(data, model := Letters())["STS"]
    scores = [np.cos((ord(b) - ord("a")) / 20) for b in "azkbz"]
    assert found["spearman"] == pytest.approx(stats.spearmanr(scores, [5, 1, 3, 2, 1]).statistic)
    assert found["parts"] == {"x": pytest.approx(1), "y": pytest.approx(1)} and found["spearman"] < 0.95
    assert sorted(model.asked) == sorted(set("azkb"))


def test_passages_are_ranked(tmp_path):
    corpus = "".join(json.dumps({"_id": name, "text": name}) + "\n" for name in "abcdefghijklmn")
    written(
        folder := tmp_path / "beir", corpus__jsonl=corpus, queries__jsonl='{"_id": "1", "text": "z"}',
        qrels_IN_test__tsv="query-id\tcorpus-id\tscore\n1\tm\t1\n1\ta\t1\n"
    )  # fmt: skip
    (data,) = find_sets(str(folder))
    found = measure(data, Letters())["retrieval"]
    assert found["ndcg@10"] == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))
    assert (found["recall@10"], found["recall@100"]) == (0.5, 1) and found["map"] == pytest.approx((1 / 2 + 2 / 14) / 2)


@pytest.mark.parametrize("text, rank", [("z", 1), ("y", 2)])
def test_a_query_among_the_passages_is_not_found(tmp_path, text, rank):
    """ArguAna's queries are passages; a passage that only has the query's id is found like any other."""
    corpus = '{"_id": "a", "text": "a"}\n{"_id": "b", "text": "b"}\n'
    written(
        tmp_path, corpus__jsonl=corpus + json.dumps({"_id": "1", "title": "z", "text": text}) + "\n",
        queries__jsonl='{"_id": "1", "text": "z"}', qrels_IN_dev__tsv="query-id\tcorpus-id\tscore\n1\ta\t-1\n1\tb\t1\n"
    )  # fmt: skip
    (data,) = find_sets(str(tmp_path))
    assert data.judgements == {"1": {"a": 0, "b": 1}}
    assert measure(data, Letters())["retrieval"]["map"] == pytest.approx(1 / rank)


def test_the_command_writes_a_table_a_file_and_a_picture_and_measures_nothing_twice(
    tmp_path, eagerly, capsys, monkeypatch
):
    folder = made(tmp_path / "model")
    rows = "".join(f"{one},{other},{n}\n" for n, (one, other) in enumerate(itertools.pairwise(TEXTS)))
    written(tmp_path / "sets", mine_IN_test__csv="sentence1,sentence2,score\n" + rows)
    settings = run_evaluation.EvaluationSettings(
        model=str(folder), suite="embeddings", data_dir=str(tmp_path / "sets"), batch_size=4
    )
    run_evaluation.main(settings)
    file = folder / "evaluation" / "embeddings" / "embeddings.json"
    report = json.loads(file.read_text())
    value = report["sets"]["mine"]["figures"]["STS"]["spearman"]
    assert f"mine  STS   spearman  {100 * value:9.2f}" in capsys.readouterr().out.replace("times 100", "")
    monkeypatch.setattr("albert_tf.suites.run.measure", None)
    run_evaluation.main(settings)
    assert json.loads(file.read_text()) == report
    # Other rules of scoring give other figures.
    with monkeypatch.context() as patch:
        patch.setattr("albert_tf.suites.run._RULES", ["0" * 64])
        patch.setattr("albert_tf.suites.run.measure", lambda *given: {"STS": {"spearman": 0.5}})
        run_evaluation.main(settings)
    assert json.loads(file.read_text())["sets"]["mine"]["figures"]["STS"]["spearman"] == 0.5
    file.write_text(json.dumps(report))
    # Figures of a set that is not asked again stay, but for those of another model.
    for model, there in ((report["identity"], {"mine", "other"}), ("0" * 64, {"mine"})):
        sets = report["sets"] | {"other": report["sets"]["mine"]}
        file.write_text(json.dumps(report | {"identity": model, "sets": sets}))
        monkeypatch.setattr("albert_tf.suites.run.measure", lambda *given: report["sets"]["mine"]["figures"])
        run_evaluation.main(settings)
        assert json.loads(file.read_text())["sets"].keys() == there
    for content in ("[]", "{}", '{"sets": {"mine": 1}}'):
        file.write_text(content)
        with refused("holds no figures of a suite; remove it"):
            run_evaluation.main(settings)
