"""Fixtures for every room: reference data that a clone does not carry, and text that every CPython does."""

import os
from pathlib import Path

import pytest

# Set before any test imports Keras or TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout (or $ALBERT_TF_SHARED); tests that need it skip without it."""
    path = Path(os.environ.get("ALBERT_TF_SHARED", Path(__file__).parents[2] / "shared"))
    if not (path / "gold").is_dir():
        pytest.skip(f"no reference data at {path}; set ALBERT_TF_SHARED to run this test")
    return path
