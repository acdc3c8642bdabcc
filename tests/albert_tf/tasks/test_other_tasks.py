"""RACE, tagging, several labels a text, and a user's own tables."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from albert_tf import AlbertClassifier
from albert_tf.tasks.race import RaceTask
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning
from tests.albert_tf.training.classes import CONFIG_OF_TABLES, write_start
from tests.refusals import assert_refused, changed, lines, refused
from tfrecords.tokenizers.loading import load_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tiny_data):
    return load_tokenizer(tiny_data)


def settings(folder, name, **changes):
    return FinetuningSettings(task=name, data_dir=str(folder), output_dir="", config="x", **changes)


QUESTIONS = """
"questions": ["What is it?", "It is a _ of syntax."], "answers": ["A", "D"], "id": "high1.txt",
"options": [["piece", "name", "loop", "value"], ["piece", "name", "loop", "LONG"]]
""".replace("\n", " ").replace("LONG", "long " * 300)
ARTICLE = f'{{"article": "{"An expression is a piece of syntax. " * 20}", {QUESTIONS}}}'


def write_race(folder, article=ARTICLE):
    for part in ("train/middle", "train/high", "dev/middle", "dev/high"):
        (folder / part).mkdir(parents=True)
        for name in ("1.txt", "2.txt"):
            (folder / part / name).write_text(article)
    return RaceTask(folder)


def test_race_reads_many_files_or_one_and_gzipped_ones(tmp_path):
    examples = write_race(tmp_path).read("train")
    assert [example.level for example in examples] == ["middle"] * 4 + ["high"] * 4
    assert examples[0].answers[1] == "What is it? name" and examples[1].answers[1] == "It is a name of syntax."
    assert (examples[0].label, examples[1].label) == (0, 3)
    middle, high = (tmp_path / "train" / level for level in ("middle", "high"))
    for folder in (middle, high):
        (folder / "1.txt").unlink()
        (folder / "1.txt.gz").write_bytes(gzip.compress(ARTICLE.encode()))
    assert RaceTask(tmp_path).read("train") == examples
    packed = gzip.compress(f"{ARTICLE}\n{ARTICLE}\n".encode())
    (middle / "all.txt").write_text(f"{ARTICLE}\n{ARTICLE}\n")
    (high / "all.txt.gz").write_bytes(packed)
    assert RaceTask(tmp_path).read("train") == examples and RaceTask(tmp_path).read("test") is None
    (middle / "all.txt.gz").write_bytes(packed)
    with refused(r"holds all.txt and all.txt.gz; keep the one"):
        RaceTask(tmp_path).read("train")


def test_race_rows_keep_the_end_of_the_answer(tmp_path, tokenizer):
    task, (cls, sep) = write_race(tmp_path), (tokenizer.cls_id, tokenizer.sep_id)
    examples = task.read("dev")
    (features, labels) = task.rows(examples, tokenizer, 64, training=True).batch([0, 1], 64)
    ids, mask, segments = (features[name] for name in ("input_ids", "input_mask", "segment_ids"))
    assert ids.shape == (2, 4, 64) and labels.tolist() == [0, 3]
    answer = tokenizer.encode(examples[0].answers[2])
    row = ids[0, 2][mask[0, 2] == 1].tolist()
    assert row[0] == cls and row[-len(answer) - 2 :] == [sep, *answer, sep]
    assert segments[0, 2].sum() == len(answer) + 1
    # An answer longer than the row: its end is kept, and nothing of the article.
    assert ids[1, 3].tolist() == [cls, sep, *tokenizer.encode(examples[1].answers[3])[-61:], sep]
    assert (task.rows(examples, tokenizer, 512, training=False).batch([1], 512)[0]["segment_ids"][0, 3].sum()) == 129


# What is replaced in the article, by what, and the sentence.
WRONG = r"""
"D" ; "E" => line 1: question 1 must be a text with 4 options and the answer A
, "D" ; => line 1: .*must be lists, equally long
["piece",;[ => line 1: question 0 must be a text with 4 options
An expression is a piece of syntax. ; => line 1: article is not a text
["What is it?", "It is a _ of syntax."];"Why?" => line 1: .*must be lists
"options";"choices" => line 1: no column 'options'
"""


@pytest.mark.parametrize("line", lines(WRONG))
def test_race_names_what_is_wrong(tmp_path, line):
    edit, _, message = line.partition(" => ")
    old, _, new = edit.replace(" ;", ";").partition(";")
    article = ARTICLE.replace(old, new.strip())
    with refused(f"train/middle/1.txt' {message}"):
        write_race(tmp_path, article).read("train")


WORDS, NAMES = ["Guido", "van", "Rossum", "wrote", "Python"], ["B-PER", "I-PER", "I-PER", "O", "B-LANG"]


@pytest.fixture
def tagging(tmp_path):
    row, other = json.dumps({"tokens": WORDS, "ner": NAMES}), '{"tokens": ["It", "runs"], "ner": ["O", "O"]}'
    for split, rows in (("train", (row, other)), ("dev", (row,)), ("test", ('{"tokens": ["It", "runs"]}',))):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    return create_task(settings(tmp_path, "tagging", text_column="tokens", label_column="ner"))


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


@pytest.mark.parametrize("labels, cut", [("O B-LANG B-PER", "O"), ("B-LANG O B-PER", "O"), ("ADJ NOUN X", None)])
def test_words_that_do_not_fit_count_as_outside_or_have_no_tag(tagging, tokenizer, labels, cut):
    examples = tagging.read("dev")
    rows = tagging.rows(examples, tokenizer, 5, training=False)
    fitting = len(rows.heads[0])
    assert len(rows.tokens["input_ids"][0]) == 5 > fitting
    outputs = [np.eye(4, dtype="float32")[[0, *[2] * 4]]]
    task = dataclasses.replace(tagging, labels=(*labels.split(), "Y"))
    assert task.predictions(examples, rows, outputs) == [[task.labels[2]] * fitting + [cut] * (5 - fitting)]


def test_tagging_scores_and_writes(tagging, tokenizer, tmp_path):
    examples = tagging.read("dev")
    rows = tagging.rows(examples, tokenizer, 64, training=False)
    logits = np.zeros((64, 4), "float32")
    logits[rows.heads[0], examples[0].tags] = 1
    assert tagging.score(examples, rows, [logits]) == {"accuracy": 1.0, "f1": 1.0}
    (path,) = tagging.write_predictions(tmp_path, "dev", examples, rows, [logits])
    assert json.loads(path.read_text()) == {"words": WORDS, "prediction": NAMES, "label": NAMES}


@pytest.mark.parametrize("name", ["classification", "tagging", "regression"])
def test_a_trained_model_needs_no_training_file(tmp_path, name):
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\t1\nb\t7\n")
    trained = {"labels": None if name == "regression" else ["5", "7", "1"]}
    task = create_task(settings(tmp_path, name), trained)
    assert task.describe()["labels"] == trained["labels"]
    found = [example[1] for example in task.read("dev")]
    assert found == {"classification": [2, 1], "tagging": [[2], [1]], "regression": [1.0, 7.0]}[name]
    with refused("holds no train file"):
        create_task(settings(tmp_path, name))


# A task with its flags, files ("|" for a tab and "/" for the end of a line), and the sentence.
REFUSED = r"""
classification => holds no train file
classification :: train.tsv text|label/a|x/b|x/ => every row has the same label
classification :: train.tsv text|label/a|x/b|y/ => no two rows have the same label
classification :: train.tsv text|label/a|x/b|/ => line 3: label is empty
classification :: train.tsv text|kind/a|x/ => no column 'label', nor class.*; it has 'text', 'kind'; give --label_column
classification :: train.tsv t|label/a|x/b|y/c|y/ => no column 'text'.*--text_column
classification :: train.tsv  :: train.csv  => train.tsv and train.csv
classification :: train.tsv OWN :: dev.tsv  :: valid.tsv  => dev and valid
classification :: train.tsv text|label/a|1/ |1/c|2/ => line 3: text is empty; fill it or remove the row
regression :: train.tsv text|label/a|none/ => line 2: label 'none' is not a number
regression :: train.jsonl {"text": "a", "label": 1}/{"text": "a", "label": true} => line 2: label True is not a number
tagging :: train.jsonl {"text": ["a", "b"], "label": ["X"]} => line 1: 2 words but 1 tags
tagging :: train.jsonl {"text": [], "label": []} => line 1: .*no list of words
tagging :: train.jsonl {"text": [1], "label": ["X"]} => line 1: .*no list of words
tagging :: train.jsonl {"wort": ["a"], "label": ["X"]} => no column 'text'
tagging :: train.jsonl {"text": ["a"]} => train.jsonl' line 1: no .*label
tagging :: train.jsonl {"text": ["a"], "label": ["X"]}/{"text": ["a"]} => train.jsonl' line 2: no .*label
tagging :: train.jsonl {"text": ["a"], "label": ["X"]} :: valid.jsonl {"text": ["a"], "label": ["Y"]} => \
valid.jsonl' line 1: tag 'Y' is none of those trained on: X
sst3 => --task=sst3 is unknown; choose one of .*sst2
classification --second_text_column=text :: train.tsv OWN => --second_text_column=text is --text_column too
regression --second_text_column=text :: train.tsv OWN => --second_text_column=text is --text_column too
tagging --second_text_column=more :: train.tsv OWN => leave out --second_text_column
""".replace("\\\n", "").replace("OWN", "text|label/a|1/b|1/c|2/")


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_is_wrong_with_own_data_is_named(tmp_path, line):
    given, _, message = line.partition(" => ")
    task, *written = given.split(" :: ")
    for name, _, content in (file.partition(" ") for file in written):
        (tmp_path / name).write_text(content.replace("|", "\t").replace("/", "\n"))
    name, *flags = task.split(" ")
    with refused(message):
        made = create_task(changed(settings(tmp_path, name), " ".join(flags)))
        made.read("dev" if "valid.jsonl" in line else "train")
        # Tags are counted where a model is to be made.
        _ = made.labels


# Several labels a text. Their answers are in test_calibration.py.
ROWS = [("bad", ["anger", "fear"]), ("good", ["joy"]), ("so", []), ("bad good", ["joy", "anger", "fear"])]


def settings_of(folder):
    (folder / "data").mkdir()
    lines = (json.dumps({"text": text, "label": labels}) + "\n" for text, labels in ROWS)
    (folder / "data" / "train.jsonl").write_text("".join(lines))
    return FinetuningSettings(
        task="multilabel", data_dir=str(folder / "data"), output_dir=str(folder / "run"),
        num_train_steps=1, **write_start(folder)
    )  # fmt: skip


OTHER_WAYS = """
--class_weights=balanced => --class_weights is for tasks that give every text a class
--early_exit => --early_exit is for classification, regression, tagging
--teacher=ONE => --teacher shows probabilities of one label a text
--init_from=ONE --config= --keep_head => fine-tuned for the kind multilabel; that of --init_from=.* has one label
"""


def test_other_ways_of_training_are_refused(tmp_path):
    started, one = settings_of(tmp_path), tmp_path / "one.keras"
    # A head of one label a text is no start for several.
    AlbertClassifier(CONFIG_OF_TABLES, 3, labels=["anger", "fear", "joy"]).save(one)
    for line in lines(OTHER_WAYS.replace("ONE", str(one))):
        assert_refused(line, started, finetuning.finetune)


def test_figures_are_the_means_of_labels_and_of_all_together(tmp_path):
    task = create_task(settings_of(tmp_path))
    # Little above even odds is enough.
    outputs = 0.3 * np.array([[1, -1, -1], [-1, -1, 1], [1, -1, -1], [1, 1, -1]])
    # anger: 2 right of 3 given and 2 there; fear: 1 of 1 and 2; joy: 1 of 1 and 2.
    figures = task.score(task.read("train"), None, outputs)
    assert figures == pytest.approx({"macro_f1": (4 / 5 + 2 / 3 + 2 / 3) / 3, "micro_f1": 8 / 11})
