"""Fine-tunes a model on a task or on your own table.

python -m albert_tf.run_finetuning --data_file=reviews.csv --init_from=albert/albert-base-v2 --output_dir=reviews_model
python -m albert_tf.run_finetuning --task=sst2 --data_dir=glue/SST-2 --init_from=run --output_dir=sst2
"""

from albert_tf.choices import OWN_KINDS
from albert_tf.config import read_config
from albert_tf.loading.hub import check_model
from albert_tf.loading.model_files import MODEL_FILE, load_task
from albert_tf.tasks.resolving import resolve_data
from albert_tf.tasks.settings import FinetuningSettings, check_data_dir
from tfrecords.base.machine.cpu import train_by_onednn
from tfrecords.base.script import run_main, say_export, start_tensorflow
from tfrecords.tokenizers.folders.folder_files import check_tokenizer


def main(settings: FinetuningSettings) -> None:
    """Fine-tunes a model."""
    settings, found = checked(settings)
    if found:
        print(found)
    start_tensorflow()
    from albert_tf.training.finetuning import finetune
    from albert_tf.training.loop.devices import make_devices

    devices = make_devices(settings.strategy)
    folder = finetune(settings, devices=devices)
    if folder and devices.is_chief and not settings.dryrun:
        metrics = (load_task(folder) or {}).get("metrics", {})
        figures = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        print(f"wrote {folder / MODEL_FILE}: {figures or _unmeasured(settings)}")
        say_export(folder, "--inputs=text", "--check")


def checked(settings: FinetuningSettings) -> tuple[FinetuningSettings, str]:
    """Checks the settings; returns them with detected task and columns, and a line about these."""
    if settings.data_dir:
        check_data_dir(settings.data_dir)
    found, data_file = resolve_data(settings)
    for path in filter(None, (settings.init_from, settings.teacher)):
        check_model(path)
    if settings.config:
        read_config(settings.config)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    if data_file:
        return found, str(data_file)
    if found == settings or settings.task not in ("", *OWN_KINDS):
        return found, ""
    flags = (f"--{name}={getattr(found, name)}" for name in ("task", "text_column", "label_column"))
    return found, f"'{settings.data_dir}' is read with {' '.join(flags)}"


def _unmeasured(settings: FinetuningSettings) -> str:
    if settings.data_file:
        return (
            "nothing was measured, as --dev_fraction=0 holds no row out; python -m albert_tf.run_evaluation "
            f"--model={settings.output_dir} --data_file=... measures it on another file"
        )
    return (
        f"nothing was measured, as --data_dir={settings.data_dir} has no dev file; add one (docs/guide/data.md "
        "names it), and the same command measures the model without training"
    )


def run() -> None:
    """Runs the command."""
    train_by_onednn()
    run_main(main, FinetuningSettings)


if __name__ == "__main__":
    run()
