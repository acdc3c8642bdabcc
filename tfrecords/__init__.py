"""Converts text to training examples, and reads them as batches of tensors."""

import os

# TensorFlow's C++ side prints a screenful about CPU flags and absent GPUs at import, some of it as errors; what really
# fails raises in Python. Whoever wants the screenful sets the variable.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# First, so that Ctrl-C is met from here on.
from tfrecords.base.machine import started  # noqa: F401
