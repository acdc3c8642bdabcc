"""The choices of export settings, without TensorFlow so that --help is fast."""

# What matrix products are computed in, whether of padding too, and which requests kernels are chosen for.
COMPUTE = ("float32", "bfloat16", "int8", "int8_vnni")
PADDING = ("computed", "skipped")
# What runs an encoder's steps.
ENGINES = ("tensorflow", "xla")
PERFORMANCE_HINTS = ("latency", "throughput")
