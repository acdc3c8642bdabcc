"""Converts weights between code bases: `python -m albert_tf.convert_checkpoint --help`."""

from absl import flags

from albert_tf.checkpoints.formats import FORMATS, load, save
from tfrecords.script import run_main

FLAGS = flags.FLAGS


def main() -> None:
    source, target = FLAGS["from"].value, FLAGS["to"].value
    model = load(FLAGS.input, source)
    save(model, FLAGS.output, target)
    print(f"{type(model).__name__}, {model.count_params():,} parameters: {FLAGS.input} -> {FLAGS.output} ({target})")


def run() -> None:
    flags.DEFINE_enum("from", None, FORMATS, "Format of the input; found from the files where not given.")
    flags.DEFINE_enum("to", None, FORMATS, "Format of the output.", required=True)
    flags.DEFINE_string(
        "input", None, "Folder, checkpoint prefix or file; a preset's name for keras_hub.", required=True
    )
    flags.DEFINE_string("output", None, "Folder to write, or a .keras file for --to=keras.", required=True)
    run_main(main)


if __name__ == "__main__":
    run()
