"""The words that the settings of exports choose between: a command's --help waits for no TensorFlow."""

# What matrix products are computed in, and whether of padding too.
COMPUTE = ("float32", "bfloat16", "int8", "int8_vnni")
PADDING = ("computed", "skipped")
