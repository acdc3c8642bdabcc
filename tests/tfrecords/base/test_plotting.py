"""Names on plots are readable in any script, and legends cover nothing."""

import warnings

import numpy as np
import pytest
from matplotlib import font_manager, rcParams
from matplotlib.figure import Figure

from albert_tf.training.pictures import draw_classes
from tfrecords.base import plotting
from tfrecords.base.plotting import fonts_for


@pytest.fixture
def only(monkeypatch):
    """only(*names): matplotlib has these of its own fonts alone, whatever this machine has; nothing told yet."""
    own = font_manager.fontManager.ttflist
    plotting._tell.cache_clear()
    plotting._families.cache_clear()

    def only(*names):
        monkeypatch.setattr(font_manager.fontManager, "ttflist", [entry for entry in own if entry.name in names])

    yield only
    plotting._families.cache_clear()


def test_a_font_that_has_the_characters_is_found(only, capsys):
    only("DejaVu Sans", "STIXGeneral")
    with fonts_for(["⌖ model"]):
        assert rcParams["font.family"] == ["DejaVu Sans", "STIXGeneral"]
    with fonts_for(["Modell für Größe"]):
        assert rcParams["font.family"] == ["DejaVu Sans"]
    assert capsys.readouterr().err == ""


def test_where_no_font_has_them_it_is_said_once_and_nothing_warns(only, capsys, tmp_path):
    only("DejaVu Sans")
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
