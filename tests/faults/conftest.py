"""Faults around the embedded server, the gateway and scoring: the slow group `faults`, a quarter of an hour."""

import resource

import pytest

from tests.faults.stage import Stage, export


@pytest.fixture
def stage(made_once, tmp_path):
    """A folder, a model of one version that must not be changed, and processes that end with the test."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Stage(tmp_path, made_once("model_of_faults", lambda folder: export(folder, 1))) as stage:
        yield stage
