"""Import this first: TensorFlow starts as training commands start it, quietly, and by oneDNN where that is faster."""

from tfrecords.base.machine.cpu import train_by_onednn

train_by_onednn()

import tfrecords.base.machine.quiet_tensorflow  # noqa: E402, F401
