"""A model's tokenizer, written as the code base that the model is converted for expects it."""

import os
from pathlib import Path

from absl import logging

from tfrecords.base.files import make_output_dir, replacing, write_json
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import tokenizer_in

_PUBLISHED = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
_NAMES = {
    "huggingface": _PUBLISHED,
    "official": _PUBLISHED,
    "keras_hub": {
        "sentencepiece": "assets/tokenizer/vocabulary.spm",
        "wordpiece": "assets/tokenizer/vocabulary.txt",
    },
}
_CLASSES = {"sentencepiece": "AlbertTokenizer", "wordpiece": "BertTokenizer"}


def save_tokenizer(tokenizer: Tokenizer, path: str | os.PathLike, form: str) -> None:
    """Writes what belongs beside a model of `form` at `path`.

    A folder that has another tokenizer keeps it, with a warning.
    """
    folder = make_output_dir(Path(path).parent if form == "keras" else path)
    found = tokenizer_in(folder)
    if found is not None:
        if found.sha256 != tokenizer.sha256:
            logging.warning("'%s' has another tokenizer, which stays: the model's own was not written", folder)
        return
    if form == "keras":
        tokenizer.save(folder)
        return
    file = folder / _NAMES[form][tokenizer.kind]
    make_output_dir(file.parent)
    with replacing(file) as temporary:
        temporary.write_bytes(tokenizer.vocabulary)
    if form != "keras_hub":
        lower = tokenizer.lower_case
        kept = tokenizer.keep_accents
        accents = {"keep_accents": kept} if tokenizer.kind == "sentencepiece" else {"strip_accents": lower and not kept}
        values = {"tokenizer_class": _CLASSES[tokenizer.kind], "do_lower_case": lower} | accents
        write_json(folder / "tokenizer_config.json", values)
