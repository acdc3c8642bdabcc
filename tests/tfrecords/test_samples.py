"""What is looked at before a corpus is read, and what is drawn from it."""

import numpy as np
import pytest

from tfrecords.corpus.documents import warn_of_markup
from tfrecords.train_tokenizer import drawn

PLAIN = "he said a < b and c > d, see <nick> and {{x}}\n== no heading\n" * 200


@pytest.mark.parametrize(
    "text, names",
    [
        ('<doc id="1">\nthe cat\n</doc>\n\n', "<doc>"),
        ("<html><body>\n<p>the cat</p>\n</body></html>\n", "<p>"),
        ("{{Infobox|a=b\nthe cat sat\n[[File:a.jpg]]\n== History ==\n", "{{, [[, =="),
        (PLAIN, ""),
        ("the cat\n" * 99 + "<b>the cat</b>\n", ""),
    ],
)
def test_markup_is_named_and_text_with_signs_is_none(tmp_path, capsys, text, names):
    (tmp_path / "text.txt").write_text(text * 20)
    warn_of_markup([tmp_path / "text.txt"])
    said = capsys.readouterr().err
    assert ("of the lines are markup" in said) == bool(names) and names in said


def test_lines_are_drawn_from_everywhere_each_as_likely():
    taken = np.array(list(drawn(range(100_000), 100_000, 20_000)))
    assert len(taken) == 20_000 and (np.diff(taken) > 0).all()
    # Of each thousand 200, with a standard deviation of 12.6.
    counts = np.bincount(taken // 1000, minlength=100)
    assert abs(counts - 200).max() < 5 * 12.6 and 8 < counts.std() < 18
    assert list(drawn("abc", 3, 9)) == ["a", "b", "c"]
