"""Choices of settings, in a module that imports no TensorFlow, so that --help is fast."""

# Ways of applying blocks over depth that give the same numbers, and the one to their fixed point.
PLAIN_WALKS = ("unrolled", "loop", "recompute")
WALKS = (*PLAIN_WALKS, "equilibrium")
OPTIMIZERS = ("lamb", "adamw", "muon")
# How the norm that gradients are clipped by is taken.
GRADIENT_NORMS = ("summed", "official")
DTYPE_POLICIES = ("float32", "mixed_bfloat16")
STRATEGIES = ("none", "mirrored", "multi_worker", "data_parallel")
DEPTH_HELP = "layers to run its blocks through, where they are shared; 0: as many as it has"
OTHER_TOKENIZER_HELP = "use --tokenizer though it is another tokenizer than the model was trained with"
# NumPy takes no greater one.
MAX_SEED = 2**32 - 1
# Of checkpoints.
FORMATS = ("official", "huggingface", "keras_hub", "keras")
# What lets a row leave early.
EXIT_RULES = ("confidence", "patience", "learned", "movement")
# The longest cycle that the analysis of an equilibrium looks for, in runs of the blocks.
LONGEST_PERIOD = 12
