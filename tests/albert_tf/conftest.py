"""What makes tiny models quick to build."""

import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    # TensorFlow prepares a kernel for each name of a variable: under the names of the test before, models are built in
    # two thirds of the time. A test that needs no Keras need not import it.
    if "keras" in sys.modules:
        sys.modules["keras"].src.utils.naming.reset_uids()
