"""What a page says is what its CSV file says, by a rule that can be checked by hand."""

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy import stats

from experiments import page, session
from experiments.picture import picture
from experiments.results import Result, read_results, write_results
from experiments.run import TableSettings, main
from experiments.tables import Comparison, Scale, Table
from experiments.verdicts import verdicts
from tfrecords.base.errors import UserError


def results(**losses):
    return [
        Result(
            row=row, seed=seed, updates=4, parameters=1_500_000, masked_lm_loss=loss, masked_lm_accuracy=0.25,
            pair_accuracy=None, training_seconds=90.0, seconds_per_step=0.25, training_flops=1.5e15,
            inference_flops_per_token=2e7, inference_ms=None, machine="a machine, with a comma",
        )
        for row, values in losses.items()
        for seed, loss in enumerate(values, 1)
    ]  # fmt: skip


PAIR = [Comparison(row="wide", against="plain", published="better", source="Nobody, 2020")]


def verdict_of(comparison=PAIR[0], **losses):
    """The only verdict on rows of these losses."""
    (verdict,) = verdicts(results(**losses), [comparison])
    return verdict


def test_a_file_of_results_reads_back(tmp_path):
    one, *others = results(plain=[5.0, 5.5], wide=[4.25])
    written = [dataclasses.replace(one, measured={"sop_accuracy": 0.5}), *others]
    write_results(written, tmp_path / "a.csv")
    assert read_results(tmp_path / "a.csv") == written
    assert page.COLUMNS["sop_accuracy"].cell(written[:2]) == "50.0 %"
    (tmp_path / "b.csv").write_text("row,seed\nplain,x\n")
    with pytest.raises(UserError, match=r"b\.csv' is no file of results"):
        read_results(tmp_path / "b.csv")
    with pytest.raises(UserError, match="cannot read"):
        read_results(tmp_path / "c.csv")


def test_a_difference_needs_more_than_the_spread():
    """The test of two rows is Welch's, which SciPy has."""
    plain, wide = [5.0, 5.1, 5.2], [4.4, 4.8, 4.9]
    verdict = verdict_of(plain=plain, wide=wide)
    interval = stats.ttest_ind(wide, plain, equal_var=False).confidence_interval(0.95)
    assert verdict.difference == pytest.approx(np.mean(wide) - np.mean(plain))
    assert verdict.needed == pytest.approx((interval.high - interval.low) / 2)
    assert (verdict.word, verdict.published) == ("not decidable", "not decidable at this scale")
    # Answers that are always the same, as of heads that learned nothing, tell of no seed.
    assert verdict_of(plain=[5.0, 5.0], wide=[4.0, 4.0]).word == "not decidable"
    verdict = verdict_of(plain=[5.0, 5.0], wide=[4.0, 4.1])
    assert (verdict.word, verdict.needed < 0.7) == ("better", True)


@pytest.mark.parametrize(
    ("wide", "word", "published"),
    [
        ([4.6, 4.8, 4.9], "better", "confirmed"),
        ([5.5, 5.6, 5.7], "worse", "not confirmed"),
        ([5.0, 5.1, 5.15], "not decidable", "not decidable at this scale"),
    ],
)
def test_verdicts(wide, word, published):
    verdict = verdict_of(plain=[5.0, 5.1, 5.2], wide=wide)
    assert (verdict.word, verdict.published) == (word, published)
    cells = page.comparison(verdict, {"plain": "Plain", "wide": "wide"})
    assert cells[0] == "wide, against Plain" and cells[-2:] == [word, f"better (Nobody, 2020): {published}"]
    assert cells[2] == f"{verdict.difference:+.3f}"


def test_a_row_is_compared_with_a_number_by_another_column():
    rows = [
        dataclasses.replace(result, measured={"sop_accuracy": accuracy})
        for result, accuracy in zip(results(plain=[5.0, 5.0, 5.0]), (0.6, 0.62, 0.61))
    ]
    (verdict,) = verdicts(rows, [Comparison(row="plain", against=50, by="sop_accuracy", published="better")])
    interval = stats.ttest_1samp([60, 62, 61], 50).confidence_interval(0.95)
    assert verdict.difference == pytest.approx(11) and verdict.word == "better"
    assert verdict.needed == pytest.approx((interval.high - interval.low) / 2)
    cells = page.comparison(verdict, {"plain": "plain"})
    assert cells[:5] == ["plain, against 50.0 %", "SOP accuracy", "+11.0 %", "2.5 %", "better"]
    assert not verdicts(rows, [Comparison(row="plain", against=50, by="nsp_accuracy")])


def test_more_comparisons_ask_for_more():
    rows = results(plain=[5.0, 5.1, 5.2], wide=[4.6, 4.8, 4.9], deep=[5.0, 5.0, 5.3])
    alone = verdicts(rows, PAIR)[0]
    beside = verdicts(rows, [*PAIR, Comparison(row="deep", against="plain")])[0]
    assert beside.needed > alone.needed and beside.difference == alone.difference


@pytest.mark.few(1)
@pytest.mark.parametrize("wider", [1, 3, 9])
def test_rarely_is_a_difference_seen_where_there_is_none(wider):
    """Of tables whose rows have one mean, and spreads of their own, about five in a hundred have a wrong sentence."""
    random = np.random.default_rng(0)
    comparisons = [Comparison(row=name, against="plain") for name in "abcde"]
    many = "abcdefghijklmnopqrst"
    of_the_best = [Comparison(row=[*many], against="plain")]
    wrong, wrong_of_the_best = 0, 0
    for _ in range(400):
        rows = results(plain=random.normal(5, wider * 0.1, 3), **{name: random.normal(5, 0.1, 3) for name in many})
        wrong += any(verdict.word != "not decidable" for verdict in verdicts(rows, comparisons))
        wrong_of_the_best += verdicts(rows, of_the_best)[0].word != "not decidable"
    assert max(wrong, wrong_of_the_best) / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_of_several_rows_the_best_is_compared():
    rows = results(plain=[5.0, 5.1, 5.2], wide=[4.6, 4.8, 4.9], deep=[4.5, 4.5, 4.6])
    (chosen,) = verdicts(rows, [Comparison(row=["wide", "missing", "deep"], against=["plain"])])
    assert chosen.comparison.row == "deep" and chosen.comparison.against == "plain" and chosen.pairs == 3
    (deep,) = verdicts(rows, [Comparison(row="deep", against="plain")])
    assert chosen.difference == deep.difference and chosen.needed > deep.needed
    rows = [dataclasses.replace(one, masked_lm_accuracy=len(one.row) / 10) for one in rows]
    (chosen,) = verdicts(rows, [Comparison(row="deep", against=["wide", "plain"], by="accuracy")])
    assert chosen.comparison.against == "plain"


def test_one_seed_decides_nothing():
    for plain in ([5.0], [5.0, 5.0, 5.1]):
        verdict = verdict_of(plain=plain, wide=[1.0])
        assert verdict.word == "not decidable" and math.isnan(verdict.needed), plain
        assert page.comparison(verdict, {"plain": "plain", "wide": "wide"})[3] == "one seed"
    assert verdicts(results(plain=[5.0, 5.1]), PAIR) == []


@pytest.fixture
def pair(settings_folder):
    return Table.read("pair", settings_folder), Scale.read("tiny", settings_folder)


def rendered(table, scale, *legend, **losses):
    return page.render(table, scale, results(**losses), "command", "a.png", "a.csv", *legend)


def test_the_page_has_the_numbers_of_the_results(pair):
    text = rendered(*pair, plain=[5.0, 5.1, 5.2], wide=[4.6, 4.8, 4.9])
    cells = ["plain", "1.50 M", "5.100 ± 0.100", "25.0 ± 0.0 %", "-", "-", "-", "1.5 ± 0.0", "80.1"]
    assert f"| {' | '.join(cells)} |" in text
    assert "| wide, against plain | held-out loss | -0.333 |" in text
    assert "Seeds 1, 2, 3, on a machine, with a comma\n" in text and "Not run" not in text
    assert "\n\nIt is tiny.\n" in text and page.RULE in text
    linked = rendered(*pair, "legend.md", plain=[5.0])
    assert linked.endswith("(legend.md)\n") and page.RULE not in linked
    assert "Seed 1 (plain: 1, 2, 3), on a machine" in rendered(*pair, plain=[5.0, 5.1, 5.2], wide=[4.6])
    assert len(set(re.findall(r"^\|.*\|$", text, re.MULTILINE))) == 7


def test_a_page_of_half_a_table_says_so(pair):
    text = rendered(*pair, plain=[5.0])
    assert "Seed 1, on a machine" in text
    assert "Not run: wide." in text and "Nothing to compare yet." in text and "| 5.000 |" in text


def test_a_page_of_one_row_compares_nothing(pair):
    table, scale = pair
    alone = dataclasses.replace(table, rows=[row for row in table.rows if row.name == "plain"], comparisons=[])
    text = rendered(alone, scale, plain=[5.0])
    assert "| 5.000 |" in text and "a.png" not in text and "Nothing to compare" not in text


def test_the_legend_is_that_of_the_tables():
    """docs/results/reading_the_tables.md describes the columns and the scale for all published tables."""
    text = (session.DOCS / "reading_the_tables.md").read_text("utf-8")
    assert page.LEGEND in text and page.RULE in text and Scale.read("small").description in text


def test_published_pages_are_those_of_their_results(tmp_path, monkeypatch):
    docs = session.DOCS
    monkeypatch.setattr(session, "DOCS", tmp_path / "results")
    monkeypatch.setattr(session, "picture", lambda *_: b"")
    pages = {path.name: path.read_text("utf-8") for path in docs.glob("*.md") if "experiments.run" in path.read_text()}
    (tmp_path / "results").mkdir()
    for name, text in pages.items():
        (tmp_path / "results" / name).write_text(re.sub(r"(: begin -->).*?(<!--)", r"\1\n\2", text, flags=re.DOTALL))
    for csv in docs.glob("experiments/*-small.csv"):
        given = {"table": csv.name.removesuffix("-small.csv"), "results": str(csv), "output_dir": str(tmp_path)}
        main(TableSettings(**given, publish=True))
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "results").glob("*.md")}
    assert {name for name in pages if made[name] != pages[name]} == set(), "run experiments.run --results --publish"


def test_a_page_is_put_between_its_markers(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- experiments.run pair: begin -->\nold\n<!-- experiments.run pair: end -->\nafter\n")
    assert page.insert(path, "pair", "new \\1\n") and not page.insert(path, "other", "no\n")
    expected = "before\n<!-- experiments.run pair: begin -->\nnew \\1\n<!-- experiments.run pair: end -->\nafter\n"
    assert path.read_text() == expected
    assert page.insert(path, "pair", "new \\1\n") and path.read_text() == expected


def test_of_several_rows_one_with_several_seeds_is_compared_where_there_is_one():
    either = Comparison(row=["deep", "wide"], against="plain")
    chosen = verdict_of(either, plain=[5.0, 5.1, 5.2], wide=[4.6, 4.8, 4.9], deep=[4.0])
    assert chosen.comparison.row == "wide" and not math.isnan(chosen.needed)
    assert verdict_of(either, plain=[5.0, 5.1], deep=[4.0], wide=[4.5]).comparison.row == "deep"


def test_the_picture_has_a_line_for_each_row_that_was_run(pair, monkeypatch):
    table, drawn = pair[0], []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure.axes[0]))
    picture(table, results(plain=[5.0, 5.1], wide=[4.0]))
    picture(table, results(wide=[4.0, 4.5]))
    both, one = ([label.get_text() for label in axes.get_yticklabels()] for axes in drawn)
    assert (both, one) == (["plain", "wide"], ["wide"])
    dots = [list(line.get_xdata()) for line in drawn[0].lines if line.get_marker() == "o"]
    assert dots == [[5.0, 5.1], [4.0]]


def test_the_picture_is_of_its_numbers(pair):
    table, _ = pair
    one = picture(table, results(plain=[5.0, 5.1], wide=[4.0]))
    assert one.startswith(b"\x89PNG") and one != picture(table, results(plain=[5.0, 5.1], wide=[4.5]))
    assert picture(table, [dataclasses.replace(one, machine="other") for one in results(plain=[5.0])])
