"""Curves of percentiles: each in a shade and with a marker of its own, whole or left out with a remark."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from serving.benchmark import plots, statistics
from tfrecords.base.plotting import fonts_for


def point(length, p99, clients=1, p50=1.0):
    middle = None if p50 is None else p50 * length / 100
    latency = {"p50": middle, "p90": middle and 1.5 * middle, "p99": p99}
    return {
        "name": f"batch 1 x {length} tokens, {clients} clients", "length": length, "unit": "tokens", "batch": 1,
        "protocol": "grpc", "arrival": "closed", "clients": clients, "rate": None, "latency_ms": latency,
        "interval_ms": {name: value and [0.9 * value, 1.1 * value] for name, value in latency.items()},
        "in_process": None, "answered": middle is not None, "requests_per_second": 1000 / length,
    }  # fmt: skip


def report(*points):
    model = {"name": "albert", "version": 1}
    return {"points": list(points), "found_rates": [], "model": model, "settings": {"bound_ms": 0}}


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """drawn(report): the axes of the latency plot, and its remark; the picture is written where it can be looked at."""

    def draw(found):
        monkeypatch.setattr(plots, "versions", lambda report: "version 1")
        monkeypatch.setattr(plots, "protocols", lambda report: "gRPC")
        with plt.style.context(plots._STYLE), fonts_for(["albert"]):
            figure = plt.figure(layout="constrained")
            assert plots.plot_latency(found, figure)
            (tmp_path / "latency.png").write_bytes(plots._png(figure))
        plt.close(figure)
        return figure.axes[0], figure.get_supxlabel()

    return draw


def test_percentiles_differ_by_shade_and_marker(drawn):
    axes, remark = drawn(report(point(64, 1.4), point(128, 3.0), point(256, 5.0)))
    assert remark == "" and len(axes.lines) == 3
    assert {line.get_linestyle() for line in axes.lines} == {"-"}, "dashes are hidden by bands"
    assert len({line.get_marker() for line in axes.lines}) == len({line.get_color() for line in axes.lines}) == 3
    bands = axes.collections
    assert len(bands) == 3 and max(band.zorder for band in bands) < min(line.zorder for line in axes.lines)


def test_a_percentile_is_drawn_whole_or_left_out_with_a_remark(drawn):
    points = [point(64, 1.4), point(128, None), point(256, None)]
    axes, remark = drawn(report(*points, *(point(length, length / 40, clients=8) for length in (64, 128, 256))))
    assert len(axes.lines) == 2 + 3 and all(len(line.get_xdata()) == 3 for line in axes.lines)
    assert "too few answers" in remark.replace("\n", " ") and "p99 of 1 clients" in remark and "8 clients" not in remark
    # Of a single length all three are dots.
    assert len(drawn(report(point(64, 1.4)))[0].lines) == 3
    # Where nobody was answered nothing is left out: there is a gap.
    axes, remark = drawn(report(point(64, 1.4), point(128, None, p50=None), point(256, 5.0)))
    assert remark == "" and len(axes.lines) == 3


def test_the_distribution_has_each_latency_at_its_percentile(monkeypatch):
    monkeypatch.setattr(plots, "_title", lambda report, what: what)
    milliseconds = np.arange(1, 10_001) / 10
    windows = [{"hdr_microseconds": statistics.encode_histogram(part)} for part in np.split(milliseconds, 2)]
    figure = plt.figure()
    assert plots.plot_distribution(report(point(64, 1.4) | {"windows": windows}), figure)
    (axes,), (line,) = figure.axes, figure.axes[0].lines
    for place, label in zip(axes.get_xticks(), axes.get_xticklabels()):
        latency = np.quantile(milliseconds, float(label.get_text()) / 100)
        assert np.interp(place, line.get_xdata(), line.get_ydata()) == pytest.approx(latency, rel=0.01)
    plt.close(figure)
