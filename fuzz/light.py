"""Targets of the light runtime: the folder of a LiteRT version, and requests to it."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder
from serving.lite import LiteModel, description
from serving.lite.description import Answer, Description, Limits, TokenizerRules
from serving.lite.signatures import signatures_of
from serving.model_server import json_request, prediction
from serving.model_server.versions.litert import LiteVersion
from tests.serving.conftest import HEADS, WORDS, write_export
from tests.tfrecords.tokenizers.twins import wordpiece

_SERVED = ("pretrainer", "spans", "token classifier", "multiple choice")
_TOKENIZER = wordpiece(*WORDS.split(), *"abcdefghijklmnopqrstuvwxyz")
_LONGEST = 16
FOLDER_WORDS = (
    *(name for kind in (Answer, Description, Limits, TokenizerRules) for name in kind.__dataclass_fields__),
    *Answer.KINDS, "int8", "int32", "bool", "0", "1", "2", "input_ids", "lengths", "logits", "sha256", "format_version",
    "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "vocab", "WordPiece", "bpe", "sentencepiece",
)  # fmt: skip
REQUEST_WORDS = (
    *("instances", "inputs", "signature_name", "b64", "text", "first", "second", "question", "context", "choices"),
    *("input_ids", "lengths", "segment_ids", "ids", "truncate_left", "prompt_name"),
    *("tokenize", "fill_mask", "sentence_order", "with_options", "masked", "[MASK] sat"),
)


def _export(folder: Path, head: str) -> Path:
    size = {"embedding_size": 8, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    config = AlbertConfig(
        vocab_size=_TOKENIZER.vocab_size, num_hidden_layers=1, max_position_embeddings=_LONGEST, **size
    )
    task = {"labels": ["a", "b", "c", "d"][: 3 + (head == "token classifier")]} if "classifier" in head else None
    settings = {"engine": "litert", "inputs": "text", "max_seq_length": _LONGEST, "doc_stride": 4}
    (folder / head).mkdir()
    return write_export(folder / head, HEADS[head](AlbertEncoder(config)), _TOKENIZER, task, **settings)


def _changed(value: Any, changes: Any) -> Any:
    """Returns a value with changes; those of a list are by place."""
    if not isinstance(changes, dict) or not isinstance(value, dict | list):
        return changes
    result = value.copy()
    for name, change in changes.items():
        if isinstance(value, dict):
            result[name] = _changed(value.get(name), change)
        elif name.isdecimal() and value:
            place = int(name[:9]) % len(value)
            result[place] = _changed(value[place], change)
    return result


def folders(folder: Path):
    """A JSON object of changes to a version's `description`, `tokenizer` and the first bytes of its `model`.

    Hashes are made right, except that of the model: only the hash tells that it was damaged.
    """
    version, copy = _export(folder, "classifier"), folder / "copy"
    copy.mkdir()
    model = (version / description.MODEL_FILE).read_bytes()
    values, tokenizer = (json.loads((version / name).read_bytes()) for name in (description.FILE, "tokenizer.json"))
    del values["sha256"]

    def check(data: bytes) -> None:
        try:
            changes = json.loads(data)
            begin = bytes(_changed(list(model[:64]), changes.get("model", {})))
            written = json.dumps(_changed(tokenizer, changes.get("tokenizer", {}))).encode()
            values["files"]["tokenizer.json"] = hashlib.sha256(written).hexdigest()
            described = dict(_changed(values, changes.get("description", {})))
        except (AttributeError, TypeError, ValueError, RecursionError):
            return
        (copy / "tokenizer.json").write_bytes(written)
        (copy / description.MODEL_FILE).write_bytes(begin + model[64:])
        described = {"sha256": description.digest(described)} | described
        (copy / description.FILE).write_text(json.dumps(described))
        lite = LiteModel(copy)
        assert begin == model[:64], "a damaged model was loaded"
        lite.predict(["the cat", "x" * 99])
        signatures_of(lite)

    return check


def requests(folder: Path):
    """The first byte chooses the version that is asked, the others are the body of predict."""
    versions = [LiteVersion(str(_export(folder, head))) for head in _SERVED]

    def check(data: bytes) -> None:
        version = versions[(data or b"\0")[0] % len(versions)]
        document = json_request.parse_object(data[1:])
        name = json_request.signature_name(document) or prediction.DEFAULT_SIGNATURE
        if name in version.signatures:
            infos = dict(version.signatures[name].inputs)
            arrays, _ = json_request.predict_inputs(document, infos)
            servable = SimpleNamespace(
                signatures=version.signatures, check_method=True, run=lambda api, *asked: version.run(*asked)
            )
            found = prediction.predict(servable, name, arrays, counts=False).values()
            assert {len(array) for array in found} == {len(array) for array in arrays.values()}, "other rows"
            assert all(np.isfinite(array).all() for array in found if array.dtype == np.float32), "NaN or infinity"

    return check
