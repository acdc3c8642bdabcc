"""The choices of export settings, without TensorFlow so that --help is fast."""

COMPUTE = ("float32", "bfloat16", "int8")  # what matrix products are computed in
