"""The choices of export settings, without TensorFlow so that --help is fast."""

# What matrix products are computed in, and whether of padding too.
COMPUTE = ("float32", "bfloat16", "int8")
PADDING = ("computed", "skipped")
