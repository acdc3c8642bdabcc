"""A tokenizer from a file or folder: this library's own, or a published checkpoint's in whatever files it came.

Known are google-research's and brightmart's vocabularies, folders that transformers and sentence-transformers wrote
(with a vocabulary file, or with nothing but the `tokenizer.json` of the `tokenizers` library), and keras-hub's presets.
"""

import base64
import os
import re
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.files import download_hint
from tfrecords.tokenizers.base import TOKENIZER_FILE, Tokenizer

# By precedence: a folder may hold copies under other names.
_VOCABULARIES = (
    "spiece.model",
    "30k-clean.model",
    "vocab.txt",
    "assets/tokenizer/vocabulary.spm",
    "assets/tokenizer/vocabulary.txt",
)
# Of a lower-cased vocabulary at most a few signs have such letters; of a cased English one about 4 in 10 pieces.
_CASED_SHARE = 0.01


def load_tokenizer(path: str | os.PathLike, lower_case: bool = True, keep_accents: bool | None = None) -> Tokenizer:
    """Loads a SentencePiece .model, a WordPiece vocab .txt, or a folder: a saved tokenizer's, or a published model's.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vocab.txt"
    >>> _ = path.write_text("[PAD] [UNK] [CLS] [SEP] [MASK] he ##llo there".replace(" ", chr(10)))
    >>> tokenizer = load_tokenizer(path)
    >>> tokenizer.encode("Hello there")
    [5, 6, 7]
    >>> tokenizer.decode([5, 6, 7])
    'hello there'

    Args:
        path: The file or folder.
        lower_case: Whether text is lower-cased, as the vocabulary was made; a folder knows its own.
        keep_accents: Whether accents stay; a folder knows its own. Where None, a SentencePiece model knows it too, and
            anything else is taken to strip them.

    Returns:
        The tokenizer.

    Raises:
        UserError: for anything else, for a folder whose vocabulary is not the one it was saved with, and for accents
            that the vocabulary itself strips.
    """
    path = Path(path)
    if not path.exists():
        mend = download_hint(path) or "give a .model, a vocab .txt or a folder with tokenizer.json"
        raise UserError(f"tokenizer '{path}' does not exist; {mend}")
    if path.is_dir():
        if not is_own(path / TOKENIZER_FILE):
            return read_tokenizer(path, keep_accents=keep_accents)
        tokenizer = _load_folder(path)
        if keep_accents not in (None, tokenizer.keep_accents):
            raise UserError(
                f"the tokenizer in '{path}' was saved with keep_accents={tokenizer.keep_accents}; "
                "leave out --keep_accents"
            )
        return tokenizer
    try:
        vocabulary = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read tokenizer '{path}': {error.strerror}") from error
    kind = "wordpiece" if path.suffix == ".txt" else "sentencepiece"
    return _build(kind, vocabulary, lower_case, keep_accents, path)


def _load_folder(folder: Path) -> Tokenizer:
    description = files.read_json(folder / TOKENIZER_FILE)
    try:
        path = folder / description["vocabulary"]
        rules = description["lower_case"], description.get("keep_accents", False)
        tokenizer = _build(description["kind"], path.read_bytes(), *rules, path)
        expected = description["sha256"]
    except (KeyError, TypeError) as error:
        raise UserError(f"'{folder / TOKENIZER_FILE}' is not a tokenizer's description; save it again") from error
    except OSError as error:
        raise UserError(f"cannot read the vocabulary of '{folder}': {error.strerror}") from error
    if tokenizer.sha256 != expected:
        raise UserError(f"'{path}' is not the vocabulary that '{folder / TOKENIZER_FILE}' describes; save it again")
    return tokenizer


def _build(kind: str, vocabulary: bytes, lower_case: bool, keep_accents: bool | None, path: Path) -> Tokenizer:
    # Only where there is a tokenizer: numba, which they compile with, takes half a second to import.
    if kind == "sentencepiece":
        from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(vocabulary, lower_case, path, keep_accents)
    from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(vocabulary, lower_case, path, bool(keep_accents))


def read_tokenizer(
    path: str | os.PathLike, lower_case: bool | None = None, keep_accents: bool | None = None
) -> Tokenizer:
    """Reads the tokenizer that a vocabulary file or a folder holds.

    Args:
        path: a SentencePiece .model, a WordPiece vocab .txt, a tokenizer.json, or a folder with one of them.
        lower_case: whether text is lower-cased. None: what the files beside the vocabulary say, or else whether the
            vocabulary has no pieces with capital letters.
        keep_accents: whether accents stay. None: what the files beside the vocabulary or a SentencePiece model say, or
            else no.

    Raises:
        UserError: there is no tokenizer or more than one, it is damaged or of an unknown kind, or `lower_case` is not
            what a folder of this library was saved with.
    """
    path = Path(path)
    if path.is_dir():
        found = tokenizer_in(path, lower_case, keep_accents)
        if found is None:
            raise UserError(f"'{path}' holds no tokenizer; give the .model or vocab .txt itself")
        return found
    if path.name == TOKENIZER_FILE and path.is_file():
        arguments = lower_case, keep_accents
        return _own(path.parent, *arguments) if is_own(path) else _from_tokenizers(path, *arguments)
    return _load(path, path.parent, lower_case, keep_accents)


def tokenizer_in(
    folder: str | os.PathLike, lower_case: bool | None = None, keep_accents: bool | None = None
) -> Tokenizer | None:
    """Finds a folder's tokenizer as `read_tokenizer` does; None where it has none."""
    folder = Path(folder)
    description = folder / TOKENIZER_FILE
    if is_own(description):
        return _own(folder, lower_case, keep_accents)
    path = next((folder / name for name in _VOCABULARIES if (folder / name).is_file()), None)
    if path is not None:
        return _load(path, folder, lower_case, keep_accents)
    if description.is_file():
        return _from_tokenizers(description, lower_case, keep_accents)
    others = sorted([*folder.glob("*.model"), *folder.glob("*vocab*.txt")])
    if len(others) > 1:
        names = ", ".join(path.name for path in others)
        raise UserError(f"of tokenizers '{folder}' holds {names}; say which is meant by --tokenizer=...")
    return _load(others[0], folder, lower_case, keep_accents) if others else None


def is_own(path: Path) -> bool:
    """Whether it is no tokenizer.json of `tokenizers` ("model" in it) or keras-hub ("class_name") in disguise."""
    values = files.read_json(path) if path.is_file() else None
    return values is not None and not (isinstance(values, dict) and values.keys() & {"model", "class_name"})


def own_sha256(folder: str | os.PathLike) -> str | None:
    """The SHA-256 of the tokenizer that a folder's model was trained with; None where this library did not write it."""
    path = Path(folder) / TOKENIZER_FILE
    return files.read_json(path).get("sha256") if is_own(path) else None


def _own(folder: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    tokenizer = load_tokenizer(folder, keep_accents=keep_accents)
    if lower_case not in (None, tokenizer.lower_case):
        raise UserError(
            f"the tokenizer in '{folder}' was saved with lower_case={tokenizer.lower_case}; leave out --lower_case"
        )
    return tokenizer


def _load(path: Path, folder: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    said = _said(folder) if lower_case is None else lower_case
    keep_accents = _said_accents(folder) if keep_accents is None else keep_accents
    tokenizer = load_tokenizer(path, True if said is None else said, keep_accents)
    return load_tokenizer(path, False, keep_accents) if said is None and _is_cased(tokenizer) else tokenizer


def _said(folder: Path) -> bool | None:
    """Whether the files beside a published vocabulary say that text is lower-cased; None where they say nothing."""
    values = _read_object(folder / "tokenizer_config.json").get("do_lower_case")
    if isinstance(values, bool):
        return values
    description = _read_object(folder / TOKENIZER_FILE)
    if "class_name" in description:
        said = description.get("config", {}).get("lowercase")
        return said if isinstance(said, bool) else None
    return _lower_cases(description) if "model" in description else None


def _said_accents(folder: Path) -> bool | None:
    """Whether the files beside a published vocabulary say that accents stay; None where they say nothing."""
    values = _read_object(folder / "tokenizer_config.json")
    # ALBERT's name for it, and BERT's, whose `null` goes by the case.
    if isinstance(values.get("keep_accents"), bool):
        return values["keep_accents"]
    if isinstance(values.get("strip_accents"), bool):
        return not values["strip_accents"]
    description = _read_object(folder / TOKENIZER_FILE)
    return _keeps_accents(description) if "model" in description else None


def _read_object(path: Path) -> dict[str, Any]:
    values = files.read_json(path) if path.is_file() else {}
    return values if isinstance(values, dict) else {}


def _is_cased(tokenizer: Tokenizer) -> bool:
    special = set(tokenizer.special_ids.tolist())
    pieces = [piece for number, piece in enumerate(tokenizer.pieces) if number not in special and piece[:1] != "["]
    return sum(bool(re.search("[A-Z]", piece)) for piece in pieces) > _CASED_SHARE * len(pieces)


def _from_tokenizers(path: Path, lower_case: bool | None, keep_accents: bool | None) -> Tokenizer:
    """A tokenizer of the `tokenizers` library, whose vocabulary is inside its JSON."""
    values = files.read_json(path)
    model = values.get("model") or {}
    # Files of its first versions do not name the kind.
    kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else "WordPiece")
    makers = {"WordPiece": _wordpiece, "Unigram": _unigram}
    if kind not in makers:
        raise UserError(f"'{path}' holds a {kind} tokenizer; known are {' and '.join(makers)}, as BERT and ALBERT have")
    lower = lower_case
    if lower is None:
        lower = _read_object(path.parent / "tokenizer_config.json").get("do_lower_case", _lower_cases(values))
    keep_accents = _keeps_accents(values) if keep_accents is None else keep_accents
    try:
        return makers[kind](values, bool(lower), path, keep_accents)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"'{path}' is no tokenizer that the `tokenizers` library wrote; copy it again") from error


def _wordpiece(values: dict, lower_case: bool, path: Path, keep_accents: bool) -> Tokenizer:
    model = values["model"]
    if model.get("continuing_subword_prefix", "##") != "##":
        raise UserError(f"'{path}' marks the inside of words by '{model['continuing_subword_prefix']}'; known is '##'")
    ids = {number: piece for piece, number in model["vocab"].items()}
    # A number that no piece has must not move those behind it.
    pieces = [ids.get(number, f"[unused_{number}]") for number in range(max(ids) + 1)]
    return _build("wordpiece", ("\n".join(pieces) + "\n").encode(), lower_case, keep_accents, path)


def _unigram(values: dict, lower_case: bool, path: Path, keep_accents: bool) -> Tokenizer:
    model, kinds = values["model"], model_pb2.ModelProto.SentencePiece
    special = {token["content"] for token in values.get("added_tokens") or [] if token.get("special")}
    proto = model_pb2.ModelProto()
    for number, (piece, score) in enumerate(model["vocab"]):
        kind = kinds.CONTROL if piece in special else kinds.NORMAL
        proto.pieces.add(piece=piece, score=score, type=kinds.UNKNOWN if number == model["unk_id"] else kind)
    proto.trainer_spec.model_type = model_pb2.TrainerSpec.UNIGRAM
    proto.trainer_spec.unk_id = model["unk_id"]
    proto.trainer_spec.unk_piece = model["vocab"][model["unk_id"]][0]
    # Absent ones: the library must not look for its defaults <s> and </s>.
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
    # One of ALBERT's own rules: a model without any could not be given the others.
    quotes = SentencePieceNormalizer(norm_map=[("``", '"')])
    proto.normalizer_spec.MergeFromString(quotes.serialized_normalizer_spec())
    proto.normalizer_spec.name = "tokenizers"
    for step in _normalizers(values):
        if step.get("type") == "Precompiled":
            proto.normalizer_spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    return _build("sentencepiece", proto.SerializeToString(deterministic=True), lower_case, keep_accents, path)


def _normalizers(values: dict) -> list[dict]:
    """The steps of normalisation, out of whatever sequences they stand in."""
    step = values.get("normalizer") or {}
    return sum((_normalizers({"normalizer": inner}) for inner in step.get("normalizers", [])), [step])


def _lower_cases(values: dict) -> bool:
    steps = _normalizers(values)
    return any(step.get("type") == "Lowercase" or step.get("lowercase") is True for step in steps)


def _keeps_accents(values: dict) -> bool:
    """Whether no step strips accents, though some step is there."""
    steps = [step for step in _normalizers(values) if step]
    bert = [step for step in steps if step.get("type") == "BertNormalizer"]
    if bert:
        return bert[0].get("strip_accents") is False
    return bool(steps) and not any(step.get("type") == "StripAccents" for step in steps)
