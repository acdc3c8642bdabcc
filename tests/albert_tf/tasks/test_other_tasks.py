"""RACE, tagging and a user's own tables."""

import gzip
import json

import numpy as np
import pytest

from albert_tf.tasks.race import RaceTask
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.loading import load_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tiny_data):
    return load_tokenizer(tiny_data)


def create(folder, name, **changes):
    return create_task(FinetuningSettings(task=name, data_dir=str(folder), output_dir="", config="x", **changes))


ARTICLE = {
    "article": "An expression is a piece of syntax. " * 20,
    "questions": ["What is it?", "It is a _ of syntax."],
    "options": [["piece", "name", "loop", "value"], ["piece", "name", "loop", "long " * 300]],
    "answers": ["A", "D"],
    "id": "high1.txt",
}


def write_race(folder, article=ARTICLE, levels=("middle", "high")):
    for split in ("train", "dev"):
        for level in levels:
            (folder / split / level).mkdir(parents=True, exist_ok=True)
            for number in (1, 2):
                (folder / split / level / f"{number}.txt").write_text(json.dumps(article))
    return RaceTask(folder)


def test_race_reads_many_files_or_one(tmp_path):
    examples = write_race(tmp_path).read("train")
    assert len(examples) == 8 and [example.level for example in examples[::4]] == ["middle", "high"]
    assert examples[0].answers[1] == "What is it? name" and examples[1].answers[1] == "It is a name of syntax."
    assert (examples[0].label, examples[1].label) == (0, 3)
    for level in ("middle", "high"):
        (tmp_path / "train" / level / "all.txt").write_text(json.dumps(ARTICLE) + "\n" + json.dumps(ARTICLE) + "\n")
    assert RaceTask(tmp_path).read("train") == examples
    assert RaceTask(tmp_path).read("test") is None


def test_race_reads_gzipped_files(tmp_path):
    examples = write_race(tmp_path).read("train")
    for path in (tmp_path / "train").glob("*/1.txt"):
        (path.parent / "1.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert RaceTask(tmp_path).read("train") == examples
    lines = f"{json.dumps(ARTICLE)}\n" * 2
    (tmp_path / "train" / "high" / "all.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("1.txt.gz", "2.txt"):
        (tmp_path / "train" / "high" / name).unlink()
    assert RaceTask(tmp_path).read("train") == examples
    (tmp_path / "train" / "middle" / "1.txt").write_text(lines)
    with pytest.raises(UserError, match=r"holds 1.txt and 1.txt.gz; keep the one"):
        RaceTask(tmp_path).read("train")


def test_race_rows_keep_the_end_of_the_answer(tmp_path, tokenizer):
    task = write_race(tmp_path)
    examples = task.read("dev")
    rows = task.rows(examples, tokenizer, 64, training=True)
    (features, labels) = rows.batch([0, 1], 64)
    assert features["input_ids"].shape == (2, 4, 64) and labels.tolist() == [0, 3]
    ids, mask, segments = (features[name] for name in ("input_ids", "input_mask", "segment_ids"))
    answer = tokenizer.encode(examples[0].answers[2])
    row = ids[0, 2][mask[0, 2] == 1].tolist()
    assert row[0] == tokenizer.cls_id and row[-len(answer) - 2 :] == [tokenizer.sep_id, *answer, tokenizer.sep_id]
    assert segments[0, 2].sum() == len(answer) + 1
    # An answer longer than the row: its end is kept, and nothing of the article.
    long = tokenizer.encode(examples[1].answers[3])[-61:]
    assert ids[1, 3].tolist() == [tokenizer.cls_id, tokenizer.sep_id, *long, tokenizer.sep_id]
    assert (task.rows(examples, tokenizer, 512, training=False).batch([1], 512)[0]["segment_ids"][0, 3].sum()) == 129


def test_race_scores_each_level(tmp_path):
    task = write_race(tmp_path)
    examples = task.read("dev")
    outputs = [np.eye(4)[example.label if example.level == "high" else 1] for example in examples]
    assert task.score(examples, None, outputs) == {"accuracy": 0.5, "middle_accuracy": 0.0, "high_accuracy": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["A", "E"]}, "question 1: answer 'E' is none of A, B, C, D"),
        ({"answers": ["A"]}, "2 questions, 2 lists of options, 1 answers"),
        ({"options": [["a", "b", "c"], ["a"] * 4]}, "question 0 must have 4 options"),
        ({"article": ""}, "article is not a text"),
        ({"questions": "Why?"}, "must be lists"),
    ],
)
def test_race_names_what_is_wrong(tmp_path, change, message):
    with pytest.raises(UserError, match=rf"train/middle/1.txt' line 1: .*{message}"):
        write_race(tmp_path, ARTICLE | change).read("train")


def test_race_without_a_column(tmp_path):
    with pytest.raises(UserError, match="no column 'options'"):
        write_race(tmp_path, {name: value for name, value in ARTICLE.items() if name != "options"}).read("train")


TAGGED = [
    {"tokens": ["Guido", "van", "Rossum", "wrote", "Python"], "ner": ["B-PER", "I-PER", "I-PER", "O", "B-LANG"]},
    {"tokens": ["It", "runs"], "ner": ["O", "O"]},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def tagging(tmp_path):
    write_lines(tmp_path / "train.jsonl", TAGGED)
    write_lines(tmp_path / "dev.jsonl", TAGGED[:1])
    write_lines(tmp_path / "test.jsonl", [{"tokens": ["It", "runs"]}])
    return create(tmp_path, "tagging", text_column="tokens", label_column="ner")


def test_tags_stand_on_the_first_piece_of_each_word(tagging, tokenizer):
    assert tagging.labels == ("O", "B-LANG", "B-PER", "I-PER") and tagging.main_metric == "f1"
    examples = tagging.read("train")
    rows = tagging.rows(examples, tokenizer, 64, training=True)
    features, tags, weights = rows.batch([0, 1], 64)
    for index, example in enumerate(examples):
        heads = np.flatnonzero(weights[index])
        assert tags[index][heads].tolist() == example.tags and (heads == rows.heads[index]).all()
        for head, word in zip(heads, example.words, strict=True):
            assert features["input_ids"][index, head] == tokenizer.encode(word)[0]


def test_words_that_do_not_fit_count_as_outside(tagging, tokenizer):
    examples = tagging.read("dev")
    rows = tagging.rows(examples, tokenizer, 5, training=False)
    assert len(rows.tokens["input_ids"][0]) == 5
    fitting = len(rows.heads[0])
    outputs = [np.eye(4, dtype="float32")[[0, *[2] * 4]]]
    assert tagging.predictions(examples, rows, outputs) == [[2] * fitting + [0] * (5 - fitting)] and fitting < 5


def test_tagging_scores_and_writes(tagging, tokenizer, tmp_path):
    examples = tagging.read("dev")
    rows = tagging.rows(examples, tokenizer, 64, training=False)
    logits = np.zeros((64, 4), "float32")
    logits[rows.heads[0], examples[0].tags] = 1
    assert tagging.score(examples, rows, [logits]) == {"accuracy": 1.0, "f1": 1.0}
    (path,) = tagging.write_predictions(tmp_path, "dev", examples, rows, [logits])
    line = json.loads(path.read_text())
    assert line == {"words": TAGGED[0]["tokens"], "prediction": TAGGED[0]["ner"], "label": TAGGED[0]["ner"]}


def test_tagging_from_a_table_with_spaces(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\nIt runs\tPRON VERB\n")
    task = create(tmp_path, "tagging")
    assert task.read("train")[0].words == ["It", "runs"] and task.main_metric == "accuracy" and task.read("dev") is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": ["a", "b"], "label": ["X"]}, "line 1: 2 words but 1 tags"),
        ({"text": [], "label": []}, "line 1: .*no list of words"),
        ({"text": [1], "label": ["X"]}, "line 1: .*no list of words"),
        ({"words": ["a"], "label": ["X"]}, "no column 'text'"),
    ],
)
def test_wrong_tagging_rows_are_named(tmp_path, row, message):
    write_lines(tmp_path / "train.jsonl", [row])
    with pytest.raises(UserError, match=message):
        create(tmp_path, "tagging").read("train")


@pytest.mark.parametrize("line", [1, 2])
def test_rows_without_tags_are_named(tmp_path, line):
    write_lines(tmp_path / "train.jsonl", [*[{"text": ["a"], "label": ["X"]}] * (line - 1), {"text": ["a"]}])
    with pytest.raises(UserError, match=f"train.jsonl' line {line}: no .*label"):
        _ = create(tmp_path, "tagging").labels


def test_a_tag_that_training_does_not_know(tmp_path):
    write_lines(tmp_path / "train.jsonl", [{"text": ["a"], "label": ["X"]}])
    write_lines(tmp_path / "valid.jsonl", [{"text": ["a"], "label": ["Y"]}])
    with pytest.raises(UserError, match=r"valid.jsonl' line 1: tag 'Y' is none of those trained on: X"):
        create(tmp_path, "tagging").read("dev")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", 'id\ttext\tlabel\n1\tgood "stuff\t10\n2\tbad\t9\n3\tbad\t9\n'),
        ("train.csv", 'id,text,label\n1,"good ""stuff",10\n2,bad,9\n3,bad,9\n'),
        ("train.jsonl", '{"text": "good \\"stuff", "label": 10}\n' + '{"text": "bad", "label": 9}\n' * 2),
    ],
)
def test_own_classes_from_every_kind_of_table(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    task = create(tmp_path, "classification")
    # By value, not by alphabet.
    assert task.labels == ("9", "10") and task.inputs == ("text",)
    assert [(example.texts, example.label) for example in task.read("train")][:2] == [
        (('good "stuff',), 1),
        (("bad",), 0),
    ]
    assert task.read("dev") is None


def test_own_pairs_and_numbers(tmp_path):
    (tmp_path / "train.csv").write_text("a,b,score\nx,y,-1.5\nz,w,2e3\n")
    task = create(tmp_path, "regression", text_column="a", second_text_column="b", label_column="score")
    assert task.inputs == ("a", "b") and [example.label for example in task.read("train")] == [-1.5, 2000.0]
    assert task.labels is None and task.main_metric == "pearson"


def test_booleans_are_no_numbers(tmp_path):
    write_lines(tmp_path / "train.jsonl", [{"text": "a", "label": 1}, {"text": "a", "label": True}])
    with pytest.raises(UserError, match="line 2: label True is not a number"):
        create(tmp_path, "regression").read("train")


@pytest.mark.parametrize("name", ["classification", "regression"])
def test_a_pair_is_of_two_columns(tmp_path, name):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\nb\t1\nc\t2\n")
    with pytest.raises(UserError, match="--second_text_column=text is --text_column too"):
        create(tmp_path, name, second_text_column="text")


def test_own_empty_texts_are_refused(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\n \t1\nc\t2\n")
    with pytest.raises(UserError, match="line 3: text is empty; fill it or remove the row"):
        create(tmp_path, "classification").read("train")


def test_half_characters_reach_no_tokenizer(tmp_path, tokenizer):
    row = {"text": "a class \ud800", "label": 1}
    write_lines(tmp_path / "train.jsonl", [row, row, row | {"label": 2}])
    task = create(tmp_path, "classification")
    assert len(task.rows(task.read("train"), tokenizer, 32, training=True)) == 3


@pytest.mark.parametrize("name", ["classification", "tagging", "regression"])
def test_a_trained_model_needs_no_training_file(tmp_path, name):
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\t1\nb\t7\n")
    trained = {"labels": None if name == "regression" else ["5", "7", "1"]}
    settings = FinetuningSettings(task=name, data_dir=str(tmp_path), output_dir="", config="x")
    task = create_task(settings, trained)
    assert task.describe()["labels"] == trained["labels"]
    found = [example[1] for example in task.read("dev")]
    assert found == {"classification": [2, 1], "tagging": [[2], [1]], "regression": [1.0, 7.0]}[name]
    with pytest.raises(UserError, match="holds no train file"):
        create_task(settings)


def test_own_booleans_are_classes(tmp_path):
    write_lines(tmp_path / "train.jsonl", [{"text": "a", "label": value} for value in (True, False, True)])
    assert create(tmp_path, "classification").labels == ("false", "true")


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        ({}, {}, "holds no train file"),
        ({"train.tsv": "text\tlabel\na\tx\nb\tx\n"}, {}, "every row has the same label"),
        ({"train.tsv": "text\tlabel\na\tx\nb\ty\n"}, {}, "no two rows have the same label"),
        ({"train.tsv": "text\tlabel\na\tx\nb\t\n"}, {}, "line 3: label is empty"),
        ({"train.tsv": "text\tclass\na\tx\n"}, {}, "no column 'label'; it has 'text', 'class'; say .*--label_column"),
        ({"train.tsv": "t\tlabel\na\tx\nb\ty\nc\ty\n"}, {}, "no column 'text'.*--text_column"),
        ({"train.tsv": "", "train.csv": ""}, {}, "train.tsv and train.csv"),
        ({"train.tsv": "text\tlabel\na\tx\n", "dev.tsv": "", "valid.tsv": ""}, {}, "dev and valid"),
    ],
)
def test_what_is_wrong_with_own_data_is_named(tmp_path, files, settings, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        create(tmp_path, "classification", **settings).read("train")


def test_an_unknown_task_is_named(tmp_path):
    with pytest.raises(UserError, match=r"--task=sst3 is unknown; choose one of .*sst2"):
        create(tmp_path, "sst3")
