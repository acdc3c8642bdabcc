"""The words that settings choose between, apart from what they name: a command's --help waits for no TensorFlow."""

# Ways of applying blocks over depth; all but "equilibrium" give the same numbers.
WALKS = ("unrolled", "loop", "recompute", "equilibrium")
OPTIMIZERS = ("lamb", "adamw")
# How the norm that gradients are clipped by is taken.
GRADIENT_NORMS = ("summed", "official")
DTYPE_POLICIES = ("float32", "mixed_bfloat16")
STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel")
# Of checkpoints.
FORMATS = ("official", "huggingface", "keras_hub", "keras")
