"""Fine-tunes a model on a task or on your own table.

python -m albert_tf.run_finetuning --task=sst2 --data_dir=glue/SST-2 --init_from=run --output_dir=sst2
python -m albert_tf.run_finetuning --task=classification --data_dir=reviews --init_from=all-MiniLM-L6-v2 \\
    --output_dir=reviews_model
"""

from albert_tf.config import read_config
from albert_tf.model_files import MODEL_FILE, check_model, load_task
from albert_tf.tasks.settings import FinetuningSettings, check_data_dir
from tfrecords.base.cpu import train_by_onednn
from tfrecords.base.script import run_main, say_next
from tfrecords.tokenizers.loading import check_tokenizer


def main(settings: FinetuningSettings) -> None:
    """Does what the flags ask for."""
    for path in filter(None, (settings.init_from, settings.teacher)):
        check_model(path)
    if settings.config:
        read_config(settings.config)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    check_data_dir(settings.data_dir)
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

    from albert_tf.training.devices import make_devices
    from albert_tf.training.finetuning import finetune

    devices = make_devices(settings.strategy)
    folder = finetune(settings, devices=devices)
    if folder and devices.is_chief and not settings.dryrun:
        metrics = (load_task(folder) or {}).get("metrics", {})
        figures = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        unmeasured = (
            f"nothing was measured, as --data_dir={settings.data_dir} has no dev file; add one (docs/finetuning.md "
            "names it), and the same command measures the model without training"
        )
        print(f"wrote {folder / MODEL_FILE}: {figures or unmeasured}")
        say_next(f"python -m serving.export --model={folder} --output_dir=servable --inputs=text --check")


def run() -> None:
    """Runs the command on the flags of its command line."""
    train_by_onednn()
    run_main(main, FinetuningSettings)


if __name__ == "__main__":
    run()
