"""The nine tasks from files laid out as GLUE's are, and the answer files it takes."""

import numpy as np
import pytest

from albert_tf.tasks.glue import GLUE, glue_task
from albert_tf.tasks.text_task import TextExample
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.loading import load_tokenizer

NLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
NLI = f"{NLI} sentence1 sentence2"
PARSES = ["0", "1", "1p", "fiction", "( a", ") b", "(c", "d)"]
# By task: split -> (header or None, rows).
FILES = {
    "cola": {
        "train": (None, [["gj04", "0", "*", '"They drank the pub.'], ["gj04", "1", "", "Bill sang."]]),
        "dev": (None, [["gj04", "1", "", "The car honked."]]),
        "test": ("index sentence", [["0", "Bill whistled."]]),
    },
    "sst2": {
        "train": ("sentence label", [["hide new \" secretions ", "0"], ["a charmer ", "1"]]),
        "dev": ("sentence label", [["bleak", "0"]]),
        "test": ("index sentence", [["0", "uneasy"], ["1", "good"]]),
    },
    "mrpc": {
        "train": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", [["1", "7", "8", 'he " said', "he said"]]),
        "dev": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", [["0", "7", "8", "a", "b"]]),
        "test": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", [["0", "7", "8", "a", "b"]]),
    },
    "stsb": {
        "train": (
            "index genre filename year old_index source1 source2 sentence1 sentence2 score",
            [["0", "g", "f", "2012", "1", "none", "none", "A plane.", "An air plane.", "5.000"]],
        ),
        "dev": (
            "index genre filename year old_index source1 source2 sentence1 sentence2 score",
            [["0", "g", "f", "2012", "1", "none", "none", "A", "B", "0.600"]],
        ),
        "test": ("index genre filename year old_index source1 source2 sentence1 sentence2",
                 [["0", "g", "f", "2012", "1", "none", "none", "A", "B"]]),
    },
    "qqp": {
        "train": ("id qid1 qid2 question1 question2 is_duplicate",
                  [["1", "2", "3", "How?", "Why?", "0"], ["2", "4", "cut off"], ["3", "5", "6", "Who?", "Who?", "1"]]),
        "dev": ("id qid1 qid2 question1 question2 is_duplicate", [["1", "2", "3", "How?", "Why?", "1"]]),
        "test": ("id question1 question2", [["0", "How?", "Why?"]]),
    },
    "mnli": {
        "train": (f"{NLI} label1 gold_label", [[*PARSES, "A", "B", "neutral", "neutral"]]),
        "dev_matched": (f"{NLI} label1 label2 label3 label4 label5 gold_label",
                        [[*PARSES, "A", "B", *"nnnnn", "entailment"], [*PARSES, "A", "B", *"nnnnn", "-"]]),
        "dev_mismatched": (f"{NLI} label1 label2 label3 label4 label5 gold_label",
                           [[*PARSES, "A", "B", *"nnnnn", "contradiction"]]),
        "test_matched": (NLI, [[*PARSES, "A", "B"]]),
        "test_mismatched": (NLI, [[*PARSES, "A", "B"]]),
        "diagnostic": ("index sentence1 sentence2", [["0", "A", "B"]]),
    },
    "qnli": {
        "train": ("index question sentence label", [["0", "When?", "In 1986.", "not_entailment"]]),
        "dev": ("index question sentence label", [["0", "Who?", "He.", "entailment"]]),
        "test": ("index question sentence", [["0", "Who?", "He."]]),
    },
    "rte": {
        "train": ("index sentence1 sentence2 label", [["0", "A", "B", "not_entailment"]]),
        "dev": ("index sentence1 sentence2 label", [["0", "A", "B", "entailment"]]),
        "test": ("index sentence1 sentence2", [["0", "A", "B"]]),
    },
    "wnli": {
        "train": ("index sentence1 sentence2 label", [["0", "A", "B", "1"]]),
        "dev": ("index sentence1 sentence2 label", [["0", "A", "B", "0"]]),
        "test": ("index sentence1 sentence2", [["0", "A", "B"]]),
    },
}  # fmt: skip
LABELS = {
    "cola": [0, 1], "sst2": [0, 1], "mrpc": [1], "stsb": [5.0], "qqp": [0, 1], "mnli": [2], "qnli": [1], "rte": [1],
    "wnli": [1],
}  # fmt: skip
SUBMISSIONS = {
    "cola": ["CoLA"], "sst2": ["SST-2"], "mrpc": ["MRPC"], "stsb": ["STS-B"], "qqp": ["QQP"],
    "mnli": ["MNLI-m", "MNLI-mm", "AX"], "qnli": ["QNLI"], "rte": ["RTE"], "wnli": ["WNLI"],
}  # fmt: skip


def write(folder, files):
    for split, (header, rows) in files.items():
        lines = [] if header is None else [header if "\t" in header else header.replace(" ", "\t")]
        lines += ["\t".join(row) for row in rows]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(params=FILES)
def task(request, tmp_path):
    write(tmp_path, FILES[request.param])
    return glue_task(request.param, str(tmp_path))


def test_every_published_layout_is_read(task):
    examples = task.read("train")
    assert [example.label for example in examples] == LABELS[task.name]
    assert all(len(example.texts) == len(task.inputs) and all(example.texts) for example in examples)
    for split in task.evaluation_splits:
        assert len(task.read(split)) == 1 and task.read(split)[0].label is not None
    for split in task.test_splits:
        assert {example.label for example in task.read(split)} == {None}


def test_the_columns_are_the_right_ones(tmp_path):
    write(tmp_path, FILES["mnli"])
    assert glue_task("mnli", str(tmp_path)).read("train") == [TextExample(("A", "B"), 2)]
    write(tmp_path, FILES["cola"])
    assert glue_task("cola", str(tmp_path)).read("train")[0].texts == ('"They drank the pub.',)


def test_submissions_are_as_glue_takes_them(task, tmp_path):
    written = []
    for split in task.test_splits:
        examples = task.read(split)
        width = 1 if task.labels is None else len(task.labels)
        outputs = [np.eye(width, dtype="float32")[-1] * 9.87654 for _ in examples]
        written += task.write_predictions(tmp_path, split, examples, None, outputs)
    submissions = [path for path in written if path.parent.name == "glue"]
    assert [path.stem for path in submissions] == SUBMISSIONS[task.name]
    answer = {"stsb": "5.000", "mnli": "neutral", "qnli": "not_entailment", "rte": "not_entailment"}.get(task.name, "1")
    assert submissions[0].read_text().splitlines()[:2] == ["index\tprediction", f"0\t{answer}"]


def test_an_empty_text_is_an_empty_segment(tmp_path, tiny_data):
    """Quora's questions hold some."""
    header = FILES["qqp"]["train"][0].replace(" ", "\t")
    (tmp_path / "train.tsv").write_text(f"{header}\n1\t2\t3\tWho?\t\t0\n2\t3\t4\t\t\t0\n")
    task, tokenizer = glue_task("qqp", str(tmp_path)), load_tokenizer(tiny_data)
    rows = task.rows(task.read("train"), tokenizer, 32, training=True)
    cls, sep, first = tokenizer.cls_id, tokenizer.sep_id, tokenizer.encode("Who?")
    assert [row.tolist() for row in rows.tokens["input_ids"]] == [[cls, *first, sep, sep], [cls, sep, sep]]
    assert rows.tokens["segment_ids"][0].tolist() == [0] * (len(first) + 2) + [1]


def test_a_broken_row_of_a_test_file_is_not_passed_over(tmp_path):
    (tmp_path / "test.tsv").write_text("id\tquestion1\tquestion2\n0\tHow?\tWhy?\n1\tcut off\n2\tWho?\tWho?\n")
    with pytest.raises(UserError, match=r"test.tsv' line 3: 2 columns, expected 3 \(id, .*mend the row"):
        glue_task("qqp", str(tmp_path)).read("test")


@pytest.mark.parametrize(("name", "header"), [("qqp", "id question1 question2"), ("rte", "index sentence1 sentence2")])
def test_submissions_name_rows_as_the_test_file_does(tmp_path, name, header):
    (tmp_path / "test.tsv").write_text(header.replace(" ", "\t") + "\n7\ta\tb\n3\tc\td\n")
    task = glue_task(name, str(tmp_path))
    (tmp_path / "out").mkdir()
    written = task.write_predictions(tmp_path / "out", "test", task.read("test"), None, np.eye(2))
    for path in written:
        assert [line.split("\t")[0] for line in path.read_text().splitlines()] == ["index", "7", "3"]


def test_absent_files_are_none(tmp_path):
    assert glue_task("rte", str(tmp_path)).read("test") is None


def test_official_hyperparameters():
    for name, values in GLUE.items():
        own = values["defaults"]
        assert (
            own.max_seq_length == 512 and own.classifier_dropout == 0.1 and own.num_warmup_steps < own.num_train_steps
        )
        assert (own.albert_dropout > 0) == (name in ("qqp", "rte", "wnli"))
    assert GLUE["mnli"]["defaults"].train_batch_size == 128 and GLUE["stsb"]["defaults"].num_train_steps == 3598


def test_scores_carry_the_fields_names(tmp_path):
    examples = [TextExample(("a",), label) for label in (0, 1, 1, 0)]
    outputs = [np.array(row, "float32") for row in ([1, 0], [0, 1], [1, 0], [2, 1])]
    assert glue_task("sst2", ".").score(examples, None, outputs) == {"accuracy": 0.75}
    assert glue_task("mrpc", ".").score(examples, None, outputs) == {"accuracy": 0.75, "f1": pytest.approx(2 / 3)}
    assert set(glue_task("cola", ".").score(examples, None, outputs)) == {"matthews", "accuracy"}
    numbers = [TextExample(("a", "b"), label) for label in (0.0, 2.0, 5.0)]
    found = glue_task("stsb", ".").score(numbers, None, [np.array([x]) for x in (1.0, 2.0, 9.0)])
    assert found["spearman"] == pytest.approx(1) and 0.9 < found["pearson"] < 1


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("sst2", "good\t2", "line 2: label '2' is none of 0, 1"),
        ("sst2", "good\t", "line 2: label '' is none of 0, 1"),
        ("sst2", "good", "line 2: 1 columns, expected 2"),
        ("stsb", "\t".join([*"0123456", "A", "B", "5.5"]), "line 2: score '5.5' is not a number from 0 to 5"),
        ("stsb", "\t".join([*"0123456", "A", "B", "nan"]), "line 2: score 'nan' is not a number from 0 to 5"),
    ],
)
def test_wrong_rows_are_named(tmp_path, name, row, message):
    header = FILES[name]["train"][0].replace(" ", "\t")
    (tmp_path / "train.tsv").write_text(f"{header}\n{row}\n")
    with pytest.raises(UserError, match=message) as error:
        glue_task(name, str(tmp_path)).read("train")
    assert "train.tsv" in str(error.value)


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\n")
    with pytest.raises(UserError, match=r"train.tsv' line 1: no column 'sentence'; it has 'text', 'label'"):
        glue_task("sst2", str(tmp_path)).read("train")


def test_the_published_files(shared):
    counts = {"cola": ("CoLA", 8551, 1043), "sst2": ("SST-2", None, 872), "mrpc": ("MRPC", 3668, 408),
              "rte": ("RTE", 2490, 277), "stsb": ("STS-B", 5749, 1500)}  # fmt: skip
    for name, (folder, train, dev) in counts.items():
        task = glue_task(name, str(shared / "data" / "glue" / folder))
        assert len(task.read("dev")) == dev
        assert train is None or len(task.read("train")) == train


def test_a_header_above_a_file_that_has_none_is_to_be_removed(tmp_path):
    (tmp_path / "train.tsv").write_text("source\tlabel\tstar\tsentence\ngj04\t1\t\tIt is.\n")
    with pytest.raises(UserError, match=r"train.tsv' line 1: label 'label' is none of 0, 1; remove this line"):
        glue_task("cola", str(tmp_path)).read("train")
