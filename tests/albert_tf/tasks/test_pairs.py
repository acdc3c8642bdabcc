"""Pairs of texts: columns found, rows refused, batches without repeated texts, prompts, teachers, hard negatives."""

import dataclasses
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import albert_tf
from albert_tf import AlbertEncoder, AlbertSentenceEmbedder, mine_negatives, run_evaluation
from albert_tf.embeddings.mining import hard_negatives, mine
from albert_tf.loaded import Loaded
from albert_tf.loading.preprocessing import Preprocessor
from albert_tf.mine_negatives import MiningSettings
from albert_tf.models.pair_losses import PairLoss
from albert_tf.models.pair_trainer import PairTrainer
from albert_tf.run_finetuning import checked
from albert_tf.tasks import pairs
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.pair_file import open_pairs
from albert_tf.training import finetuning
from albert_tf.training.loop.batches import epoch_order
from tests.albert_tf.tiny import graphs, small, table
from tests.refusals import changed, lines, refused
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.base import files
from tfrecords.base.parts import Parts

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TOKENIZER = wordpiece("of", *WORDS)
CONFIG = small(vocab_size=TOKENIZER.vocab_size, num_hidden_layers=1, initializer_range=0.2)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Of a run on a.csv in this folder, which begins from the embedder in `start`."""
    monkeypatch.chdir(tmp_path)
    return FinetuningSettings(task="pairs", data_file="a.csv", init_from="start", output_dir="run")


@pytest.fixture
def start(tmp_path, eagerly):
    """A saved embedder with prompts."""
    model = AlbertSentenceEmbedder(AlbertEncoder(CONFIG, seed=1, pooler=False), "max")
    task = {"prompts": {"query": "one ", "passage": "two "}, "max_seq_length": 24}
    return Loaded(model, TOKENIZER, task).save(tmp_path / "start")


def write(text, name="a.csv"):
    Path(name).write_text(text)


# The header, flags, and what is found.
FOUND = """
anchor,positive | => anchor 'anchor', positive 'positive'; 9 rows .*, 1 held out .*; loss multiple_negatives
Question,x,Answer | => anchor 'Question', positive 'Answer';
sentence1,sentence2,score | => 'sentence2', score 'score' from 2 to 92, higher for more similar texts; .* loss cosent
query,passage,negative_1,negative_2 | => negative 'negative_1', negative 'negative_2'; .* loss multiple_neg
query,passage,Negative | --loss=triplet => positive 'passage', negative 'Negative'; .* loss triplet
query,passage,negative,label | --loss=margin_mse => negative 'negative', score 'label' from 3 to 93; .* loss margin_mse
text,other | --teacher=start => anchor 'text'; .* loss mse
a,b | --text_column=b --second_text_column=a --dev_fraction=0 => anchor 'b', positive 'a'; 10 rows, none held out
"""


@pytest.mark.parametrize("line", lines(FOUND))
def test_columns_and_loss_are_found(settings, line):
    given, _, said = line.partition("=> ")
    header, _, flags = given.partition(" | ")
    cells = [str(n) for n, _ in enumerate(header.split(","))]
    write(header + "\n" + "".join(",".join(f"{n}{cell}" for cell in cells) + "\n" for n in range(10)))
    found = open_pairs(changed(settings, flags))
    assert re.search(said, str(found)), str(found)
    assert sum(1 for _ in found.examples("train")) + sum(1 for _ in found.examples("dev") or ()) == 10


# What a.csv holds, flags, and the sentence.
REFUSED = r"""
x,y\na,b\n | => 'a.csv' line 1: no column is the anchor; it has 'x', 'y'; give --text_column=..., or put a line of names
anchor^positive\na^b\n | => no column is the anchor; it has 'anchor\^positive'
anchor,y\na,b\n | => loss=multiple_negatives_ranking needs a column of a positive; give --second_text_column=.*; it has
anchor,negative\na,b\n | => no column is the positive; .* give --second_text_column=
query,answer,passage\na,b,c\n | => 'answer' and 'passage' may each be the positive; .* give --second_text_column=
anchor,positive\na,b\n | --loss=triplet => --loss=triplet needs a column of a negative, .*mine_negatives
anchor,positive\na,b\n | --loss=cosent => --loss=cosent needs a column of scores of the pairs; give --label_column
anchor,positive\na,b\n | --loss=mse => --loss=mse needs an embedder to learn from; give --teacher
anchor,positive,negative\na,b,c\n | --loss=margin_mse => needs a column of margins of one negative; .* --teacher
anchor,positive,negative,score\na,b,c,1\n | => --loss=cosent does not read the negatives of negative; remove that column
anchor,positive,label\na,b,1\n | --loss=multiple_negatives_ranking => does not read the scores of column 'label'
anchor,positive\na,b\n | --teacher=start --loss=multiple_negatives_ranking => does not read a --teacher; leave it out
anchor,positive,negative\na,b,c\nd,e,e\n | => 'a.csv' line 3: negative is the positive too; give another negative
sentence1,sentence2,score\na,b,3\nc,d,3\n | => every pair has the score 3, of which --loss=cosent learns nothing
anchor,positive\na,\n,b\n | => line 2: positive is empty; fill it or remove the row \(also line 3: anchor is empty\)
sentence1,sentence2,score\na,b,much\n | => 'a.csv' line 2: score 'much' is not a number
anchor,negative\na,b\n | --second_text_column=negative => the column 'negative' has two roles
anchor,positive\na,b\na,c\n | => of 2 rows with 1 different anchors holds out none
{"anchor": "a", "positive": "b"}\n{"anchor": "c", "positive": "d", "negative": "e"}\n | => line 1: no column 'negative'
anchor,positive\na,b\n | --loss=mnrl => --loss=mnrl is unknown; choose one of
anchor,positive\na,b\n | --matryoshka_dims=2 --loss=mse => --matryoshka_dims=2 has no effect on --loss=mse
anchor,positive\na,b\n | --matryoshka_dims=8,x => --matryoshka_dims=8,x must be widths such as 384,128,64
anchor,positive\na,b\n | --keep_head => --keep_head=True is not for --task=pairs; leave it out
anchor,positive\na,b\n | --task= --loss=mse => --loss=mse is for --task=pairs
anchor,positive\na,b\n | --prompt=passage=a => --prompt=passage=a must begin with query= or document=
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_what_no_pairs_are_is_refused_before_tensorflow(settings, line):
    given, _, said = line.partition("=> ")
    content, _, flags = given.partition(" | ")
    name = "a.jsonl" if content.startswith("{") else "a.csv"
    write(content.replace("\\n", "\n"), name)
    with refused(said):
        checked(changed(settings, f"--data_file={name} {flags}"))


@pytest.mark.parametrize("header", ["anchor,positive", "sentence1,sentence2,score"])
def test_equal_anchors_and_a_pair_in_either_order_are_on_one_side(settings, header):
    """Café 0 has two partners; each of them has others, in the other order and another spelling."""
    one_way = [(f"café {n // 2}", f"tea {n}") for n in range(40)]
    other_way = [(second.upper(), unicodedata.normalize("NFD", first)) for first, second in one_way]
    write(
        header
        + "\n"
        + "".join(f"{a},{b}{f',{n}' * ('score' in header)}\n" for n, (a, b) in enumerate(one_way + other_way))
    )
    found = open_pairs(dataclasses.replace(settings, dev_fraction=0.2))
    assert found.held_out.sum() == 16
    groups = found.held_out.reshape(2, 20, 2)
    assert all(len(set(groups[:, n].reshape(-1).tolist())) == 1 for n in range(20))


def numbered(count, repeats):
    """Pairs of a number and its word, each anchor and positive in so many rows."""
    numbers = [n // repeats for n in range(count)]
    return [f"{WORDS[n % 10]} of {WORDS[n // 10]}" for n in numbers], [WORDS[n % 10] for n in numbers]


def rows_of(anchors, positives, **options):
    return pairs.TextPairs(Preprocessor(TOKENIZER, 16), anchors, positives, **options).rows


def test_no_text_is_twice_in_a_batch():
    rows = rows_of(*numbered(90, 3), batch_size=8)
    first, second, again = (epoch_order(rows.sizes, 8, 5, epoch, rows.keys) for epoch in (0, 1, 0))
    for batches in (first, second):
        assert {len(set(rows.keys[batch].reshape(-1))) for batch in batches} == {16}
        assert len(set(batches.reshape(-1))) == batches.size >= 64
    assert not np.array_equal(first[0], second[0])
    assert_array_equal(first, again)


def test_rows_that_fill_no_batch_are_an_error():
    with refused(r"no 4 of 8 rows have different texts, as a batch needs; .* a lower"):
        rows_of(WORDS[:8], ["one"] * 8, batch_size=4)


def test_documents_of_a_row_are_side_by_side():
    rows = rows_of(["one", "two of two"], ["three", "four"], negatives=[["five of six", "seven"]], batch_size=2)
    (batch,) = rows.batch([0, 1], {name: 5 for name in rows.tokens})
    found = [[[TOKENIZER.pieces[one] for one in text if one] for text in row] for row in batch["document_input_ids"]]
    assert found == [
        [["[CLS]", "three", "[SEP]"], ["[CLS]", "five", "of", "six", "[SEP]"]],
        [["[CLS]", "four", "[SEP]"], ["[CLS]", "seven", "[SEP]"]],
    ]
    assert batch["document_input_mask"].sum(axis=-1).tolist() == [[3, 5], [3, 3]]
    assert batch["input_ids"].tolist()[0] == [2, TOKENIZER.pieces.index("one"), 3, 0, 0]


def test_fit_learns_pairs(eagerly):
    positives = numbered(10, 1)[1]
    data = pairs.TextPairs(Preprocessor(TOKENIZER, 16), [f"{text} of" for text in positives], positives, batch_size=5)
    trainer = PairTrainer(AlbertSentenceEmbedder(AlbertEncoder(CONFIG, seed=1, pooler=False)), PairLoss(dims=(16, 4)))
    trainer.compile(albert_tf.optimizers.AdamWeightDecay(3e-3))
    losses = trainer.fit(data, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0] and data.epoch >= 6


def test_a_run_learns_and_keeps_pooling_and_prompts(settings, start, capsys):
    anchors, positives = numbered(40, 1)
    write("anchor,positive\n" + "".join(f"{a},{p}\n" for a, p in zip(anchors, positives)))
    trained = changed(
        settings, "--num_train_steps=4 --train_batch_size=4 --learning_rate=1e-2 --prompt='document=three '"
    )
    finetuning.finetune(trained)
    loaded, before = albert_tf.load("run"), albert_tf.load("start")
    assert type(loaded.model) is AlbertSentenceEmbedder and loaded.model.pooling == "max"
    task = json.loads(Path("run/task.json").read_text())
    assert task["prompts"] == {"query": "one ", "passage": "three "} and task["max_seq_length"] == 24
    assert set(task["metrics"]) == {"mrr", "accuracy"}
    query, document = loaded.encode_query("four"), loaded.encode_document(["four"])
    assert_array_equal(query, loaded.encode("one four"))
    assert_array_equal(document[0], loaded.encode("three four"))
    assert_array_equal(loaded.encode("four"), loaded.encode("four", prompt_name=""))
    assert np.abs(query - before.encode_query("four")).max() > 1e-3
    assert Path("run/predictions/dev.tsv").read_text().startswith("line\tcosine:positive\n")
    # What it was before, and what the rows held out are answered.
    printed, first = capsys.readouterr().out, Path("run/history.csv").read_text().splitlines()[1]
    assert first.startswith("0,0.0,") and f"before training: dev_mrr {first.split(',')[2]}" in printed
    held_out = Path("run/held_out.csv")
    assert held_out.read_text().startswith("text,second_text,prediction,probability\n")
    run_evaluation.main(run_evaluation.EvaluationSettings(model="run", data_file=str(held_out), output_dir="measured"))
    measured = json.loads(Path("measured/evaluation.json").read_text())
    assert measured["metrics"] == pytest.approx(task["metrics"]) and "were trained on" not in capsys.readouterr().out
    run_evaluation.main(run_evaluation.EvaluationSettings(model="run", data_file="a.csv", output_dir="measured"))
    assert f"warning: {40 - measured['rows']} of 40 rows were trained on" in capsys.readouterr().out


def test_a_small_model_learns_the_vectors_of_a_wider_one(settings, start, tmp_path):
    """LEAF: its vectors get the teacher's width, so that it answers queries to an index of the teacher's vectors."""
    narrow, (texts, _) = AlbertEncoder(CONFIG.replace(hidden_size=12), seed=2, pooler=False), numbered(40, 1)
    Loaded(AlbertSentenceEmbedder(narrow), TOKENIZER, {}).save(tmp_path / "narrow")
    write("text\n" + "".join(f"{text}\n" for text in texts))
    flags = "--teacher=start --init_from=narrow --num_train_steps=30 --train_batch_size=8 --learning_rate=1e-2"
    with graphs():
        finetuning.finetune(changed(settings, f"{flags} --save_checkpoints_steps=30"))
    loaded, teacher = albert_tf.load("run"), albert_tf.load("start")
    assert loaded.model.dimensions == 16 and loaded.model.encoder.config.hidden_size == 12
    cosines = np.sum(loaded.encode(texts) * teacher.encode_query(texts), axis=1)
    assert cosines.mean() > 0.9
    assert_allclose(loaded.task["metrics"]["cosine"], cosines.mean(), atol=0.1)
    index = albert_tf.open_index(teacher.index(texts).save("index"), loaded)
    assert index.search(texts[0], top=1)[0].score > 0.8


UNLEARNABLE = """
negative,label | --loss=margin_mse => the column 'label' has a margin of 6, but .* are from -2 to 2; scale the column
negative | --train_batch_size=1 => compares the rows of a batch, which is 1 row of 9 with .*=1; give 2
"""


@pytest.mark.parametrize("line", lines(UNLEARNABLE))
def test_what_teaches_nothing_is_refused(settings, start, line):
    given, _, said = line.partition(" => ")
    columns, _, flags = given.partition(" | ")
    write(f"anchor,positive,{columns}\n" + "".join(f"{n},one,two{',6' * ('label' in columns)}\n" for n in WORDS))
    with refused(said):
        finetuning.finetune(changed(settings, flags))


# Of rows in order, the texts of anchor and positive by number, and the ranks. The same text in another row is no better
# answer, and another positive of the same anchor is none; a text that is better counts once.
RANKS = """
0 1 2 3 4 5 | 1 2 3
0 1 2 3 4 1 | 1 1 2
0 1 2 3 0 5 | 1 2 2
0 1 2 3 4 5 6 1 | 1 2 3 1
"""


@pytest.mark.parametrize("keys, ranks", table(RANKS))
def test_ranks(keys, ranks):
    keys = np.array(keys.split(), int).reshape(-1, 2)
    vectors = np.array([[[1, 0], [1, 0]], [[0, 1], [1, 0.1]], [[1, 0], [0.9, 0.1]], [[1, 0], [1, 0]]])[: len(keys)]
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    assert " ".join(map(str, pairs.ranks_of(vectors.astype("float32"), keys))) == ranks


def unit(*angles):
    return np.array([[np.cos(angle), np.sin(angle)] for angle in angles], "float32")


def test_hard_negatives_are_below_the_margin_and_no_positives():
    passages = unit(0.0, 0.3, 0.1, 0.6, 0.2, 0.4)
    anchor, positive, own = unit(0.0), unit(0.2), [[4]]

    def found(margin=0.0, last=100, number=2):
        return hard_negatives(anchor, positive, passages, own, number, margin, last)[0]

    assert found() == [1, 5] and found(margin=0.05) == [5, 3]
    assert found(number=3) == [1, 5, 3]
    assert found(number=4) is None
    # Candidates are the nearest besides the anchor's own, as sentence-transformers counts them: here 0, 2, 1, 5 and 3.
    assert found(last=4) == [1, 5] and found(last=3) is None
    assert found(margin=0.05, last=5) == [5, 3] and found(margin=0.05, last=4) is None


def mining(header, **others):
    """Settings of mining for texts that are their own answers, as even an untrained model finds."""
    negative = ",one of two" * ("negative" in header)
    write(header + "\n" + "".join(f"{text},{text}{negative}\n" for text in numbered(20, 2)[0]))
    write("passage\n" + "".join(f"{a} of {b}\n" for a in WORDS for b in WORDS[:3]), "all.csv")
    files = {"data_file": "a.csv", "passages": "all.csv", "output_file": "mined.csv"} | others
    return MiningSettings(model="start", num_negatives=2, relative_margin=0.0, **files)


def test_what_mining_would_lose_or_take_for_a_pair_is_refused(settings, start):
    for name, flag in (("a.csv", "data_file"), ("all.csv", "passages")):
        with refused(f"--output_file=./{name} is --{flag}"):
            mining("anchor,positive", output_file=f"./{name}")
    given = mining("anchor,positive")
    write("anchor,positive,label\none,two,1\none,three,0\n")
    with refused(r"'a\.csv' has the scores 'label'"):
        mine_negatives.main(given)
    write("anchor,positive\none,two\n")
    write("words_\none\n", "all.csv")
    with refused("give --passage_column="):
        mine_negatives.main(given)


def test_mining_writes_rows_for_training_and_goes_on_after_a_kill(settings, start, monkeypatch):
    given = mining("question,answer")
    whole = mine(given, open_pairs(given)).read_text()
    assert whole.startswith("question,answer,negative_1,negative_2\n")
    mined = open_pairs(dataclasses.replace(settings, data_file="mined.csv", dev_fraction=0.0))
    assert len(mined.columns) == 4 and mined.rows >= 3
    assert {len(set(example.texts)) for example in mined.examples("train")} == {3}
    assert not [path for path in start.parent.iterdir() if path.name.startswith(".")]
    encode, calls = Loaded.encode_document, []

    def counted(self, texts, **options):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, texts, **options)

    monkeypatch.setattr(albert_tf.embeddings.mining, "_CHUNK", 12)
    monkeypatch.setattr(Loaded, "encode_document", counted)
    with pytest.raises(KeyboardInterrupt):
        mine(given, open_pairs(given))
    calls.append(0)
    assert mine(given, open_pairs(given)).read_text() == whole
    # Twenty-four of thirty passages were there. The positives are passages, which are encoded once.
    assert calls[4:] == [6]


def test_mining_keeps_negatives_that_are_there_and_leaves_no_files(settings, start, capsys):
    given = mining("anchor,positive,negative_1", text_column="anchor")
    # Of a killed run on other texts.
    parts = Parts(files.make_output_dir(".mined.csv.parts"))
    parts.claim({"documents": "0"})
    parts.finish("documents-0", {}, [])
    mine_negatives.main(given)
    assert Path("mined.csv").read_text().startswith("anchor,positive,negative_1,negative_2,negative_3\n")
    # What is proposed next reads the same columns, and writes elsewhere than into the model's folder.
    said = "--task=pairs --data_file=mined.csv --init_from=start --output_dir=start-mined --text_column=anchor"
    assert said in capsys.readouterr().err
    rows = list(open_pairs(dataclasses.replace(settings, data_file="mined.csv", dev_fraction=0.0)).examples("train"))
    assert rows and all(one.texts[2] == "one of two" and len(set(one.texts)) == 4 for one in rows)
    assert not list(start.parent.glob(".*"))
