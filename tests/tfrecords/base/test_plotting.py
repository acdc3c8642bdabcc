"""Names on plots are readable in any script, and legends cover nothing."""

import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from matplotlib import font_manager, rcParams
from matplotlib.figure import Figure

from albert_tf.training.pictures import draw_classes
from tfrecords.base import plotting
from tfrecords.base.plotting import fonts_for


@pytest.fixture
def fonts(monkeypatch):
    """matplotlib's own fonts alone, whatever this machine has; nothing told yet."""
    own = [entry for entry in font_manager.fontManager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    plotting._tell.cache_clear()
    plotting._families.cache_clear()
    yield
    plotting._families.cache_clear()


@pytest.fixture
def chinese_font(fonts, tmp_path):
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "zhong"])
    font.setupCharacterMap({ord("中"): "zhong"})
    font.setupGlyf({name: _empty_glyph() for name in (".notdef", "zhong")})
    font.setupHorizontalMetrics({name: (1000, 0) for name in (".notdef", "zhong")})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Tiny Chinese", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(tmp_path / "tiny.ttf")
    font_manager.fontManager.addfont(tmp_path / "tiny.ttf")


def _empty_glyph():
    from fontTools.ttLib.tables._g_l_y_f import Glyph

    return Glyph()


def test_a_font_that_has_the_characters_is_found(chinese_font, capsys):
    with fonts_for(["中 model"]):
        assert rcParams["font.family"] == ["DejaVu Sans", "Tiny Chinese"]
    with fonts_for(["Modell für Größe"]):
        assert rcParams["font.family"] == ["DejaVu Sans"]
    assert capsys.readouterr().err == ""


def test_where_no_font_has_them_it_is_said_once_and_nothing_warns(fonts, capsys, tmp_path):
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with fonts_for(["中文模型"]):
                figure = Figure()
                figure.suptitle("中文模型")
                figure.savefig(tmp_path / "a.png")
    said = capsys.readouterr().err
    assert said.count("no installed font has '中'") == 1 and said.count("\n") == 1


def test_dollar_signs_are_text(tmp_path):
    draw_classes(tmp_path / "classes.png", ["$", "$$", "$_{$", "\\x"], np.eye(4, dtype=int), {})
    assert (tmp_path / "classes.png").stat().st_size > 1000
