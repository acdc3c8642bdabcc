"""Everything between raw text and batches of tensors."""

import os

# TensorFlow prints a screenful about CPU flags and absent GPUs at import; whoever wants it sets the variable.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
