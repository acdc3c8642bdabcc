"""The nine tasks from files laid out as GLUE's are, and the answer files it takes."""

import numpy as np
import pytest

from albert_tf.tasks.glue import GLUE, glue_task
from tests.albert_tf.tiny import table
from tests.refusals import lines, refused

# A file a paragraph: its task and split, then its lines, with | for a tab.
FILES = """
cola train
gj04|0|*|"They drank the pub.
gj04|1||Bill sang.

cola dev
gj04|1||The car honked.

cola test
index|sentence
0|Bill whistled.

sst2 train
sentence|label
hide new " secretions |0
a charmer |1

sst2 dev
sentence|label
bleak|0

sst2 test
index|sentence
0|uneasy
1|good

mrpc train
\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String
1|7|8|he " said|he said

mrpc dev
Quality|#1 ID|#2 ID|#1 String|#2 String
0|7|8|a|b

mrpc test
index|#1 ID|#2 ID|#1 String|#2 String
0|7|8|a|b

stsb train
index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score
0|g|f|2012|1|none|none|A plane.|An air plane.|5.000

stsb dev
index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score
0|g|f|2012|1|none|none|A|B|0.600

stsb test
index|genre|filename|year|old_index|source1|source2|sentence1|sentence2
0|g|f|2012|1|none|none|A|B

qqp train
id|qid1|qid2|question1|question2|is_duplicate
1|2|3|How?|Why?|0
2|4|cut off
3|5|6|Who?|Who?|1

qqp dev
id|qid1|qid2|question1|question2|is_duplicate
1|2|3|How?|Why?|1

qqp test
id|question1|question2
0|How?|Why?

mnli train
index|promptID|pairID|genre|binary_parse1|binary_parse2|parse1|parse2|sentence1|sentence2|label1|gold_label
0|1|1p|fiction|( a|) b|(c|d)|A|B|neutral|neutral

mnli dev_matched
index|promptID|pairID|genre|binary_parse1|binary_parse2|parse1|parse2|sentence1|sentence2|label1|label2|gold_label
0|1|1p|fiction|( a|) b|(c|d)|A|B|n|n|entailment
0|1|1p|fiction|( a|) b|(c|d)|A|B|n|n|-

mnli dev_mismatched
index|promptID|pairID|genre|binary_parse1|binary_parse2|parse1|parse2|sentence1|sentence2|label1|label2|gold_label
0|1|1p|fiction|( a|) b|(c|d)|A|B|n|n|contradiction

mnli test_matched
index|promptID|pairID|genre|binary_parse1|binary_parse2|parse1|parse2|sentence1|sentence2
0|1|1p|fiction|( a|) b|(c|d)|A|B

mnli test_mismatched
index|promptID|pairID|genre|binary_parse1|binary_parse2|parse1|parse2|sentence1|sentence2
0|1|1p|fiction|( a|) b|(c|d)|A|B

mnli diagnostic
index|sentence1|sentence2
0|A|B

qnli train
index|question|sentence|label
0|When?|In 1986.|not_entailment

qnli dev
index|question|sentence|label
0|Who?|He.|entailment

qnli test
index|question|sentence
0|Who?|He.

rte train
index|sentence1|sentence2|label
0|A|B|not_entailment

rte dev
index|sentence1|sentence2|label
0|A|B|entailment

rte test
index|sentence1|sentence2
0|A|B

wnli train
index|sentence1|sentence2|label
0|A|B|1

wnli dev
index|sentence1|sentence2|label
0|A|B|0

wnli test
index|sentence1|sentence2
0|A|B
"""
# The first training example's texts, all training labels, what its answers' files are called, and the last class.
TASKS = """
cola | "They drank the pub. | 0, 1 | CoLA | 1
sst2 | hide new " secretions | 0, 1 | SST-2 | 1
mrpc | he " said + he said | 1 | MRPC | 1
stsb | A plane. + An air plane. | 5.0 | STS-B | 5.000
qqp | How? + Why? | 0, 1 | QQP | 1
mnli | A + B | 2 | MNLI-m MNLI-mm AX | neutral
qnli | When? + In 1986. | 1 | QNLI | not_entailment
rte | A + B | 1 | RTE | not_entailment
wnli | A + B | 1 | WNLI | 1
"""
TASKS = {name: cells for name, *cells in table(TASKS)}


def write(folder, files):
    for file in files.strip("\n").split("\n\n"):
        title, content = file.split("\n", 1)
        path = folder / f"{title.split()[-1]}.tsv"
        path.write_text(content.replace("|", "\t") + "\n", encoding="utf-8")


@pytest.fixture(params=TASKS)
def task(request, tmp_path):
    write(tmp_path, "\n\n".join(file for file in FILES.split("\n\n") if file.split()[0] == request.param))
    return glue_task(request.param, str(tmp_path))


def test_every_published_layout_is_read(task):
    examples = task.read("train")
    first, labels, _, _ = TASKS[task.name]
    assert [text.strip() for text in examples[0].texts] == first.split(" + ")
    assert ", ".join(str(example.label) for example in examples) == labels
    assert all(len(example.texts) == len(task.inputs) and all(example.texts) for example in examples)
    for split in task.evaluation_splits:
        assert len(task.read(split)) == 1 and task.read(split)[0].label is not None
    for split in task.test_splits:
        assert {example.label for example in task.read(split)} == {None}


def test_submissions_are_as_glue_takes_them(task, tmp_path):
    written = []
    for split in task.test_splits:
        examples = task.read(split)
        width = 1 if task.labels is None else len(task.labels)
        outputs = [np.eye(width, dtype="float32")[-1] * 9.87654 for _ in examples]
        written += task.write_predictions(tmp_path, split, examples, None, outputs)
    submissions = [path for path in written if path.parent.name == "glue"]
    _, _, names, answer = TASKS[task.name]
    assert [path.stem for path in submissions] == names.split()
    assert submissions[0].read_text().splitlines()[:2] == ["index\tprediction", f"0\t{answer}"]


def test_official_hyperparameters():
    for name, values in GLUE.items():
        own = values["defaults"]
        assert (own.max_seq_length, own.classifier_dropout) == (512, 0.1)
        assert own.num_warmup_steps < own.num_train_steps
        assert (own.albert_dropout > 0) == (name in ("qqp", "rte", "wnli"))
    assert GLUE["mnli"]["defaults"].train_batch_size == 128 and GLUE["stsb"]["defaults"].num_train_steps == 3598


STSB = "stsb train/index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score/0|1|2|3|4|5|6|A|B|"
# A file with "/" for the end of a line, and the sentence.
WRONG = r"""
sst2 train/sentence|label/good|2 => line 2: label '2' is none of 0, 1
sst2 train/sentence|label/good| => line 2: label '' is none of 0, 1
sst2 train/sentence|label/good => line 2: 1 columns, expected 2
STSB5.5 => line 2: score '5.5' is not a number from 0 to 5
STSBnan => line 2: score 'nan' is not a number from 0 to 5
sst2 train/text|label/a|1 => line 1: no column 'sentence'; it has 'text', 'label'
cola train/source|label|star|sentence/gj04|1||It is. => line 1: label 'label' is none of 0, 1; remove this line
qqp test/id|question1|question2/0|How?|Why?/1|cut off/2|Who?|Who? => line 3: 2 columns, expected 3 \(id, .*fix the row
""".replace("STSB", STSB)


@pytest.mark.parametrize("line", lines(WRONG))
def test_wrong_files_are_named(tmp_path, line):
    file, _, message = line.partition(" => ")
    write(tmp_path, file.replace("/", "\n"))
    name, split = file.partition("/")[0].split()
    with refused(rf"{split}.tsv' {message}"):
        glue_task(name, str(tmp_path)).read(split)
    assert glue_task(name, str(tmp_path)).read("dev") is None


# By folder: training rows (none are stored of the largest) and dev rows.
PUBLISHED = {"CoLA": (8551, 1043), "SST-2": (None, 872), "MRPC": (3668, 408), "RTE": (2490, 277), "STS-B": (5749, 1500)}


def test_the_published_files(shared):
    for folder, counts in PUBLISHED.items():
        task = glue_task(folder.replace("-", "").lower(), str(shared / "data" / "glue" / folder))
        found = [task.read(split) if count else () for split, count in zip(("train", "dev"), counts)]
        assert [len(rows) or None for rows in found] == list(counts)
