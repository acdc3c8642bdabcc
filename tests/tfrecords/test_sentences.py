# ruff: noqa: RUF001
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecords.corpus.documents import split_paragraph


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. J. Doe at 3 p.m. in Washington, D.C. He left.", '"Why?" she asked.', "No!", "Really?!"],
        ["See e.g. Fig. 3.", "Version 2.21 costs $9.99 a day.", "Done (really.)", "(It was.)", "Next"],
        ["It rained... nobody came.", "Éva did.", "1999 was cold."],
    ],
)
def test_english(sentences):
    assert split_paragraph(" ".join(sentences)) == sentences


def test_chinese_needs_no_space_and_keeps_closing_quotes():
    sentences = ["他说：“你好。”", "然后走了。", "真的吗？！", "是的……", "没有句号"]
    assert split_paragraph("".join(sentences)) == sentences


@given(st.text(st.sampled_from("aB. !?。！…\"'”)( 1一\t"), max_size=60))
def test_no_character_is_lost_and_no_sentence_is_empty(paragraph):
    sentences = split_paragraph(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence.strip() == sentence != "" for sentence in sentences)


@pytest.mark.parametrize("unit", [".", "。", ". ", '."', "… "])
def test_runs_of_marks_take_linear_time(unit):
    # Quadratic time would be minutes for this many, and the suite's time limit would end it.
    assert split_paragraph(unit * 500_000)
