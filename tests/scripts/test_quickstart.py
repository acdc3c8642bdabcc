"""The stages of the road as commands, none of them run."""

import argparse
import contextlib
import re
import urllib.request
from pathlib import Path

import pytest

from scripts import learned, quickstart
from tests.stand_in import TEXT, StandIn
from tfrecords.tokenizers.loading import load_tokenizer


class Listed:
    """A road that is not walked: its stages' titles and commands."""

    def __init__(self):
        self.commands = []

    def mix(self, *inputs):
        pass

    def stage(self, title, output, command, resumes=False):
        self.commands.append((title, [str(word) for word in command[1:]]))


@pytest.fixture
def stages(tmp_path, monkeypatch):
    def listed(*arguments):
        monkeypatch.setattr("sys.argv", ["quickstart.sh", f"--output_dir={tmp_path}", *arguments])
        for name in ("corpus.txt", "cut_corpus.txt"):
            (tmp_path / name).write_text("What stage 0 would write.")
        road = Listed()
        quickstart.run_stages(quickstart.parse_arguments(), road)
        return road.commands

    return listed


def test_without_a_corpus_it_is_pythons_help(stages, tmp_path):
    first, vocabulary, *_ = [command for _, command in stages()]
    assert first == ["-m", "tests.topics", f"{tmp_path}/corpus.txt"]
    assert f"--input={tmp_path}/corpus.txt" in vocabulary


def test_a_corpus_of_few_documents_is_cut(stages, tmp_path):
    (tmp_path / "mine.txt").write_text("One document. Of two sentences.")
    first, vocabulary, *_ = [command for _, command in stages(f"--corpus={tmp_path}/mine.txt")]
    assert first[1] == "scripts.cut_corpus" and first[-1] == f"{tmp_path}/cut_corpus.txt"
    assert f"--input={tmp_path}/cut_corpus.txt" in vocabulary


def test_the_stages_are_those_of_the_documented_road(stages):
    modules = [command[1] for _, command in stages()]
    pages = ("README.md", "docs/guide/pretrain.md")
    shown = "".join((Path(__file__).parents[2] / page).read_text() for page in pages)
    assert modules[1:] == [
        "tfrecords.train_tokenizer", "tfrecords.create_pretraining_data", "albert_tf.run_pretraining",
        "albert_tf.run_evaluation", "serving.export", "serving.export",
    ]  # fmt: skip
    assert all(f"python -m {module} " in shown for module in modules[1:])


@pytest.mark.parametrize("bad", ["--steps=1", "--seconds=0", "--port=70000"])
def test_arguments_that_no_road_could_have(stages, bad, capsys):
    with pytest.raises(SystemExit):
        stages(bad)
    assert bad.partition("=")[0] in capsys.readouterr().err


def test_it_goes_on_serving_with_a_page(tmp_path, monkeypatch, capsys):
    @contextlib.contextmanager
    def server(*_):
        with StandIn(signatures={"serving_default": (TEXT, {"embedding": (1, 2)})}) as stand_in:
            yield stand_in.target

    def look():
        url = re.search(r"in a browser: (\S+)", capsys.readouterr().out)[1]
        assert "<h1>Try the models</h1>" in urllib.request.urlopen(url).read().decode()
        raise KeyboardInterrupt

    monkeypatch.setattr(quickstart, "running_server", server)
    monkeypatch.setattr(quickstart.signal, "pause", look)
    with pytest.raises(KeyboardInterrupt):
        quickstart.keep_serving(argparse.Namespace(output_dir=tmp_path, port=0))
    assert "model text version 1: embed" in (tmp_path / "gateway.log").read_text()


def test_words_of_held_out_rows_are_masked_and_shown_beside_the_truth(tiny_data):
    tokenizer = load_tokenizer(tiny_data)
    rows = learned.held_out_rows(str(tiny_data), 20)
    masked = learned.masked_words(rows, tokenizer, 1)
    assert masked and masked == learned.masked_words(rows, tokenizer, 1)
    # Many of these short rows have one word to choose.
    assert any(masked != learned.masked_words(rows, tokenizer, seed) for seed in range(2, 8))
    whole = ["".join(tokenizer.decode(ids.tolist()).split()) for ids in rows]
    for text, truth in masked:
        assert text.count(learned.MASK) == 1 and truth.isalpha() and len(truth) >= learned.SHORTEST_WORD
        assert "".join(text.replace(learned.MASK, truth).split()) in whole
    answers = [{"text": text, "truth": truth, "proposed": [truth, "x"]} for text, truth in masked[:1]]
    answers += [{"text": text, "truth": truth, "proposed": ["x", truth]} for text, truth in masked[1:2]]
    shown = learned.table(answers)
    assert "____" in shown and "1 of 2 right at once, 2 among its first 2" in shown
    assert sum(line.endswith(" right") for line in shown.splitlines()) == 1
    assert "No held-out row has a word of 4 letters or more" in learned.table([])


def test_the_loss_is_drawn(tmp_path):
    (tmp_path / "history.csv").write_text("step,loss,val_loss\n1,3.0,\n2,2.0,2.5\n")
    learned.draw_loss(tmp_path / "history.csv", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
