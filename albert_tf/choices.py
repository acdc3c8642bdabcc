"""Choices of settings, in a module that imports no TensorFlow, so that --help is fast."""

# Equivalent modes of the depth loop, and the one to a fixed point.
PLAIN_WALKS = ("unrolled", "loop", "recompute")
WALKS = (*PLAIN_WALKS, "equilibrium")
OPTIMIZERS = ("lamb", "adamw", "muon")
# Definitions of the norm for gradient clipping.
GRADIENT_NORMS = ("summed", "official")
DTYPE_POLICIES = ("float32", "mixed_bfloat16")
STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel")
DEPTH_HELP = "number of layers to run, for a model that shares blocks; 0: as many as it has"
ALLOW_PICKLE_HELP = "read a model of the hub whose weights are a PyTorch pickle alone, which can run code when opened"
OTHER_TOKENIZER_HELP = "use --tokenizer though it is another tokenizer than the model was trained with"
# NumPy's maximum.
MAX_SEED = 2**32 - 1
# Of checkpoints.
FORMATS = ("official", "huggingface", "keras_hub", "keras")
# Criteria for early exit.
EXIT_RULES = ("confidence", "patience", "learned", "movement")
# The longest cycle that the equilibrium analysis looks for, in block runs.
LONGEST_PERIOD = 12
