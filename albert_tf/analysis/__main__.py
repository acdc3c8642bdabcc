"""Counts the parameters and operations of configurations.

python -m albert_tf.analysis
python -m albert_tf.analysis --configs=albert_base_v2,my_config.json --max_seq_length=128
"""

import dataclasses

from albert_tf.analysis import PAPER
from albert_tf.choices import DEPTH_HELP
from albert_tf.config import read_config
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostSettings(CheckedSettings):
    """The command's flags."""

    configs: str = setting(
        ",".join(PAPER), help="Published configurations, models on the hub, or .json files, by commas."
    )
    max_seq_length: int = setting(512, help="Tokens a row, for the GFLOP column.", at_least=1)
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)


def main(settings: CostSettings) -> None:
    """Prints the table of costs."""
    configs = {name: read_config(name) for name in settings.configs.split(",")}
    start_tensorflow()
    from albert_tf.analysis.cost import print_costs

    print_costs(configs, settings.depth, settings.max_seq_length)


def run() -> None:
    """Runs the command."""
    run_main(main, CostSettings)


if __name__ == "__main__":
    run()
