"""Combines the answers of several fine-tuned models, and scores them.

python -m albert_tf.run_ensemble --task=sst2 --data_dir=glue/SST-2 --models=sst2_a,sst2_b --output_dir=both
python -m albert_tf.run_ensemble --task=squad2 --data_dir=squad --models=run-1,run-2,run-3 --output_dir=all
"""

from pathlib import Path

from albert_tf.loading.hub import check_model
from albert_tf.tasks.settings import EnsembleSettings, check_data_dir
from tfrecords.base.script import run_main, start_tensorflow


def main(settings: EnsembleSettings) -> None:
    """Runs the ensemble."""
    for path in filter(None, settings.models.split(",")):
        check_model(path)
    check_data_dir(settings.data_dir)
    start_tensorflow()
    from albert_tf.training.ensemble import ensemble

    ensemble(settings)
    print(f"wrote {Path(settings.output_dir) / 'ensemble.json'}")


def run() -> None:
    """Runs the command."""
    run_main(main, EnsembleSettings)


if __name__ == "__main__":
    run()
