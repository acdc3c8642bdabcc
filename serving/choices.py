"""The words that the settings of exports choose between: a command's --help waits for no TensorFlow."""

# What matrix products are computed in, whether of padding too, and which requests kernels are chosen for.
COMPUTE = ("float32", "bfloat16", "int8", "int8_vnni")
PADDING = ("computed", "skipped")
PERFORMANCE_HINTS = ("latency", "throughput")
