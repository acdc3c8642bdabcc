"""Runs what `python` would, with commands made small: the `python` on the PATH of the guides' tests.

The values of flags that a guide gives are replaced by those of SMALL; flags of ADDED are given too.
"""

import os
import re
import sys

SMALL = {
    "tfrecords.train_tokenizer": {"vocab_size": "300", "max_words": "5"},
    "tfrecords.create_pretraining_data": {"max_seq_length": "48", "held_out_fraction": "0.2"},
    "albert_tf.run_pretraining": {
        **{"num_train_steps": "2", "learning_rate": "0.001", "memory_gb": "4"},
        **{"second_from_step": "1", "second_train_batch_size": "4"},
    },
    "albert_tf.run_finetuning": {"num_train_steps": "2", "num_train_epochs": "0", "max_seq_length": "96"},
    "albert_tf.compress": {
        **{"embedding_size": "8", "lora_rank": "2", "vocab_size": "70", "max_seq_length": "32"},
        **{"num_train_steps": "2"},
    },
    "serving.benchmark": {"seconds": "0.3", "lengths": "8"},
}
STEPS = ("--num_train_steps=2", "--train_batch_size=4")
ADDED = {
    "tfrecords.train_tokenizer": ["--nohard_vocab_limit"],
    "tfrecords.create_pretraining_data": ["--max_seq_length=48", "--max_unknown_share=1", "--held_out_fraction=0.2"],
    "albert_tf.run_pretraining": [*STEPS, "--num_warmup_steps=1", "--max_eval_steps=1"],
    "albert_tf.run_finetuning": [*STEPS, "--other_tokenizer"],
    "albert_tf.run_evaluation": [],
    "albert_tf.compress": ["--train_batch_size=4", "--held_out_rows=16", "--lora_rank=2"],
    "serving.benchmark": ["--warmup_seconds=0.1"]
}  # fmt: skip


def small(arguments):
    """Returns the arguments of python with smaller values.

    >>> small(["-m", "serving.benchmark", "--seconds=3"])
    ['-m', 'serving.benchmark', '--seconds=0.3', '--warmup_seconds=0.1']
    """
    if arguments[:1] != ["-m"] or arguments[1] not in ADDED:
        return arguments
    module, values = arguments[1], SMALL.get(arguments[1], {})
    given = [argument.partition("=")[0].removeprefix("--") for argument in arguments]
    changed = [f"--{n}={values[n]}" if n in values else argument for n, argument in zip(given, arguments)]
    changed = [re.sub(r"--config=(\w+)$", r"--config=small/\1.json", argument) for argument in changed]
    # A vocabulary that is extended has no limit.
    added = [] if "add_to" in given else ADDED[module]
    return changed + [flag for flag in added if flag.partition("=")[0].removeprefix("--") not in given]


if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, *small(sys.argv[1:])])
