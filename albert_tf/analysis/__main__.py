"""Prints what configurations cost: `python -m albert_tf.analysis [--configs=NAMES OR FILES] [--max_seq_length=512]`."""

from pathlib import Path

from absl import flags

from albert_tf.analysis.cost import PAPER, cost_table
from albert_tf.config import AlbertConfig
from tfrecords.base.script import run_main

FLAGS = flags.FLAGS


def main() -> None:
    configs = {}
    for name in FLAGS.configs:
        named = AlbertConfig.from_json(name) if Path(name).suffix == ".json" else AlbertConfig.named(name)
        # The paper counts every model with ALBERT's vocabulary.
        configs[name] = named.replace(vocab_size=30000) if name in PAPER else named
    print(cost_table(configs, FLAGS.max_seq_length))


def run() -> None:
    flags.DEFINE_list("configs", list(PAPER), "Names of published configurations, or .json files.")
    flags.DEFINE_integer("max_seq_length", 512, "Tokens a row, for the GFLOP column.", lower_bound=1)
    run_main(main)


if __name__ == "__main__":
    run()
