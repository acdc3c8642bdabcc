"""Folders as transformers and sentence-transformers write them: answered as they do, or refused, or warned of by name.

It needs PyTorch, transformers and sentence-transformers (requirements/folders.txt), here or in the environment of the
interpreter that FOLDERS_PYTHON names. FOLDERS_DRAWS says how many folders are drawn, FOLDERS_SEED which.
"""

import json
import logging as standard_logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.models.classifiers import AlbertTokenClassifier
from tests.folders.texts import SECONDS, TEXTS
from tfrecords.base.errors import UserError

PYTHON = os.environ.get("FOLDERS_PYTHON", sys.executable)
DRAWS, SEED = int(os.environ.get("FOLDERS_DRAWS", "300")), int(os.environ.get("FOLDERS_SEED", "1"))
# Seconds for a folder on a busy machine: written, answered there and answered here.
SECONDS_A_DRAW, SHOWN_EVERY = 20, 25
NEEDED = "import torch, transformers, sentence_transformers"


@pytest.fixture(scope="module")
def show(request):
    """Shows a line of progress on stderr, which pytest would keep until the end."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line):
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    return show


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, show):
    if subprocess.run([PYTHON, "-c", NEEDED], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no torch, transformers and sentence_transformers (requirements/folders.txt)")
    output = tmp_path_factory.mktemp("folders")
    program = Path(__file__).with_name("theirs.py")
    command = [PYTHON, str(program), str(output), str(SEED), str(DRAWS)]
    with open(output / "log.txt", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for number, _ in enumerate(process.stdout, 1):
            if number % SHOWN_EVERY == 0:
                show(f"{number} of {DRAWS} folders written")
    assert process.wait() == 0, (output / "log.txt").read_text()[-2000:]
    return output


def softmax(numbers):
    powers = np.exp(np.subtract(numbers, np.max(numbers, axis=-1, keepdims=True)))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(numbers):
    return 1 / (1 + np.exp(-np.asarray(numbers)))


def ours(folder, chosen, theirs):
    """Our answers and theirs in one form."""
    loaded, kind = albert_tf.load(folder), chosen["kind"]
    if kind == "embedder":
        return loaded.predict(TEXTS), theirs
    if kind in ("sparse", "router"):
        return [encode(TEXTS, normalize=False) for encode in (loaded.encode, loaded.encode_query)], theirs
    if isinstance(loaded.model, AlbertTokenClassifier):
        features = [loaded.preprocessor()([text]) for text in TEXTS[:3]]
        return [softmax(loaded.model(row).numpy())[0, 1:2] for row in features], theirs
    pairs = (TEXTS, SECONDS) if kind == "cross_encoder" else (TEXTS[:3],)
    answers = loaded.predict(*pairs)
    if kind == "classifier":
        values = [sorted(one["probabilities"].items()) if isinstance(one, dict) else [("", one)] for one in answers]
        if [[name for name, _ in row] for row in values] != [[name for name, _ in row] for row in theirs] and len(
            values[0]
        ) > 1:
            return [np.inf], [0]
        return [[score for _, score in row] for row in values], [[score for _, score in row] for row in theirs]
    if isinstance(answers[0], dict):
        found = [list(one["probabilities"].values()) for one in answers]
        # Logits there, where no activation is named; of several labels a text each has a probability of its own.
        if np.ptp(np.sum(found, axis=-1)) <= 1e-6:
            return found, softmax(theirs)
        return found, sigmoid(theirs) if chosen["activation"] == "missing" else theirs
    return answers, np.reshape(theirs, -1)


def judged(folder, result, caplog):
    """ "equal", "refused", "warned", or what the difference is."""
    caplog.clear()
    try:
        found, expected = ours(folder, result["chosen"], result["answers"])
    except UserError as error:
        return f"refused: {error}"
    found, expected = np.asarray(found, "float64"), np.asarray(expected, "float64")
    if found.shape == expected.shape and np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max()):
        return "equal"
    said = [record.getMessage() for record in caplog.records]
    warned = [one for one in said if not any(other in one for other in ("truncated to rows", "tf.function retracing"))]
    if warned:
        return f"warned: {warned}"
    difference = np.abs(found - expected).max() if found.shape == expected.shape else (found.shape, expected.shape)
    return f"silent: {difference}"


@pytest.mark.slow("folders")
@pytest.mark.timeout(600 + SECONDS_A_DRAW * DRAWS)
def test_no_folder_is_answered_otherwise_without_a_word(drawn, caplog, show):
    caplog.set_level(standard_logging.WARNING)
    counts, silent = {}, []
    for number in range(DRAWS):
        if number and number % SHOWN_EVERY == 0:
            show(f"{number} of {DRAWS} folders compared: {counts}, {len(silent)} silent")
        result = json.loads((drawn / f"{number}.json").read_text())
        if "answers" not in result:
            counts["not answered there"] = counts.get("not answered there", 0) + 1
            continue
        verdict = judged(drawn / str(number), result, caplog)
        word = verdict.split(":")[0]
        counts[word] = counts.get(word, 0) + 1
        if os.environ.get("FOLDERS_VERBOSE"):
            print(number, result["chosen"]["kind"], verdict[:300], flush=True)
        if word == "silent":
            silent.append((number, verdict, result["chosen"]))
    print(counts)
    assert not silent, f"{len(silent)} silent differences, the first ones: {silent[:3]}; {counts}"
    # Refusing everything would be no differences either.
    assert counts["equal"] >= 0.5 * DRAWS, counts
