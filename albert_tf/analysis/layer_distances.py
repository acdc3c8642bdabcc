"""Measures how far each layer moves its input, as Figure 1 of the ALBERT paper does.

python -m albert_tf.analysis.layer_distances --models=a.keras,b --input=text.txt --output_dir=out
python -m albert_tf.analysis.layer_distances --models=albert_base --input=text.txt --depth=24 --output_dir=deep
"""

import dataclasses
import itertools

from albert_tf.choices import DEPTH_HELP
from albert_tf.loading.hub import check_model
from albert_tf.trainer_settings import PublishedModel
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.base.script import run_main, start_tensorflow
from tfrecords.base.settings import setting
from tfrecords.corpus import read_documents
from tfrecords.tokenizers.folders.folder_files import check_tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerDistancesSettings(PublishedModel):
    """The command's flags."""

    models: str = setting(help="checkpoints to compare, by commas, in any format that convert_checkpoint reads")
    input: str = setting(help="globs of text files, by commas")
    output_dir: str = setting(help="folder for distances.csv and distances.png")
    documents: int = setting(32, help="documents to read", at_least=1)
    max_seq_length: int = setting(128, help="longest document in tokens; longer ones are cut", at_least=5)
    depth: int = setting(0, help=DEPTH_HELP, at_least=0)
    tokenizer: str = setting("", help="SentencePiece model, vocab.txt, or a folder; left out: each model's own")


def read_texts(patterns: str, documents: int) -> list[str]:
    """Reads the first `documents` documents of `patterns`; raises UserError if there are none."""
    texts = [" ".join(sentences) for sentences in itertools.islice(read_documents(patterns), documents)]
    if not texts:
        raise UserError(f"no text in '{patterns}'")
    return texts


def main(settings: LayerDistancesSettings) -> None:
    """Measures every model on the same texts."""
    models = settings.models.split(",")
    for path in models:
        check_model(path, settings.allow_pickle)
    if settings.tokenizer:
        check_tokenizer(settings.tokenizer)
    texts = read_texts(settings.input, settings.documents)
    output_dir = make_output_dir(settings.output_dir)
    start_tensorflow()
    from albert_tf.analysis.distances import measure

    measure(settings, models, texts, output_dir)


def run() -> None:
    """Runs the command."""
    run_main(main, LayerDistancesSettings)


if __name__ == "__main__":
    run()
