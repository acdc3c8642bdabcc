"""Our figures beside MLPerf's LoadGen, on a machine that does nothing else: `scripts/test.sh -m slow`."""

import pytest

pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen==6.0.17")


@pytest.mark.slow
def test_single_stream_and_server_figures_agree_within_five_percent():
    from benchmarks.client_loadgen import compare

    for scenario, (ours, theirs) in compare().items():
        for name in ours:
            assert ours[name] == pytest.approx(theirs[name], rel=0.05), (scenario, name)
