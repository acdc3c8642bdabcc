"""What makes tiny models quick to build."""

import pytest
from keras.src.utils import naming


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    # TensorFlow prepares a kernel for each name of a variable: under the names of the test before, models are built in
    # two thirds of the time.
    naming.reset_uids()
