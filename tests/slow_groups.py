"""The groups of slow tests: what each holds, by the places of its tests. `python -m scripts.slow` runs them in turn.

A test is in the group that its marker names (`@pytest.mark.slow("browser")`), or else in the first one below whose path
its own begins with. `pytest -m slow_models` runs one group.
"""

import pytest

GROUPS = {
    "depth": ("tests/albert_tf/test_depth.py", "tests/albert_tf/test_equilibrium"),
    "training": ("tests/albert_tf/training", "tests/albert_tf/compression", "tests/albert_tf/test_training_state.py"),
    "stored": ("tests/test_",),
    "models": ("tests/albert_tf",),
    "inference": ("tests/serving/inference",),
    "exports": ("tests/serving/exportable", "tests/serving/test_"),
    "serving": ("tests/serving",),
    "tfrecords": ("tests/tfrecords",),
    "docs": ("tests/docs",),
    "notebooks": ("tests/examples",),
    "tools": ("tests/benchmarks", "tests/scripts", "tests/fuzz"),
    "clients": ("tests/clients",),
    # By their markers alone.
    "served_docs": (),
    "browser": (),
    "jax": (),
    "folders": (),
    "soak": (),
    "litert": (),
    "arm64": (),
    "faults": (),
    "packages": (),
}


def group_of(item):
    """Returns the group of a slow test."""
    marked = [name for marker in item.iter_markers("slow") for name in marker.args]
    if marked:
        return marked[0]
    path = item.nodeid.split("::")[0]
    return next(group for group, places in GROUPS.items() if path.startswith(places))


def some_slow(cases, quick, *group):
    """Returns cases, values or tuples, of which those that do not begin with one of `quick` are slow, in that group."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=() if row[0] in quick else pytest.mark.slow(*group)) for row in rows]
