"""Answers texts with LiteRT versions, without TensorFlow: `python -m tests.arm64.ask FOLDER [EXPECTED]`.

Prints the answers of the version in each folder of FOLDER by output, as a JSON object. With EXPECTED, a file of what
another machine printed, the status is 1 if an answer is further from it than that version's own tolerance.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from serving.lite import LiteModel
from serving.lite.signatures import signatures_of

TEXTS = [b"the cat sat", b"paris is the capital of france, isn't it?", b"a", "café 2,000 [SEP] 中".encode(), b"x " * 60]
CONTEXTS = [b"the cat sat on the mat. " * 12, b"paris is the capital of france", b"a", b"x", b"film " * 60]
# What stands for an impossible span is no number to compare.
_IMPOSSIBLE = -1e3


def answers_of(folder):
    """Returns the outputs of a version's signature by text as lists."""
    model = LiteModel(folder)
    values: dict[str, Any] = {"text": TEXTS, "first": TEXTS, "second": TEXTS[::-1], "question": TEXTS}
    values |= {"context": CONTEXTS, "choices": [[b"cat", b"paris", b"the mat", b"film"]] * len(TEXTS)}
    is_words = model.description.answer.kind == "words"
    if is_words:
        mask = model.rows.tokenizer.id_to_piece(model.rows.tokenizer.mask_id)
        values["text"] = [f"{mask} sat, the {mask}".encode(), f"the film is {mask}".encode()]
    signature = signatures_of(model)["fill_mask" if is_words else "serving_default"]
    given = {name: np.array(values[name], dtype) for name, (dtype, _) in signature.inputs.items()}
    found = signature.call(given, lambda: None)
    return {name: values.tolist() for name, values in found.items()} | {"tolerance": model.description.tolerance}


def differences(expected, found):
    """Returns how far each output is, by which part of the tolerance; infinity where texts or sizes are others."""
    far = {}
    for name, values in expected.items():
        ours, theirs = np.array(values), np.array(found[name])
        if ours.dtype.kind != "f":
            far[name] = 0.0 if ours.shape == theirs.shape and (ours == theirs).all() else np.inf
            continue
        largest = np.abs(ours[ours > _IMPOSSIBLE]).max(initial=0.0) or 1.0
        ours, theirs = (np.maximum(one, _IMPOSSIBLE) for one in (ours, theirs))
        far[name] = float(np.abs(ours - theirs).max(initial=0.0) / largest / expected["tolerance"])
    return far


def main():
    """Returns the status of the command."""
    answers = {folder.name: answers_of(folder) for folder in sorted(Path(sys.argv[1]).iterdir())}
    # Texts are bytes up to here.
    found = json.loads(json.dumps(answers, default=bytes.decode))
    print(json.dumps(found))
    if len(sys.argv) == 2:
        return 0
    expected, worst = json.loads(Path(sys.argv[2]).read_text()), 0.0
    for name, values in expected.items():
        far = differences(values, found[name])
        worst = max(worst, *far.values())
        print(f"{platform.machine()} {name}: {max(far.values()):.3f} of its tolerance", file=sys.stderr)
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
