"""Folders as transformers and sentence-transformers write them: answered as they do, or refused, or warned of by name.

It needs PyTorch, transformers and sentence-transformers (requirements/folders.txt), here or in the environment of the
interpreter that FOLDERS_PYTHON names. FOLDERS_DRAWS says how many folders are drawn, FOLDERS_SEED which, by theirs.py;
encoders.py draws 200 of Nomic, GTE, EuroBERT and ModernBERT with odd keys.
"""

import collections
import json
import logging as standard_logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

import albert_tf
from albert_tf.checkpoints import load_huggingface
from albert_tf.models.classifiers import AlbertTokenClassifier
from tests.folders.texts import SECONDS, TEXTS
from tfrecords.answers.numbers import softmax
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


def drawn(program, output, draws, show):
    """Has a program of this folder write so many draws, and shows how far it is."""
    if subprocess.run([PYTHON, "-c", NEEDED], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no torch, transformers and sentence_transformers (requirements/folders.txt)")
    command = [PYTHON, Path(__file__).with_name(program), output, str(SEED), str(draws)]
    with open(output / "log.txt", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for number, _ in enumerate(process.stdout, 1):
            if number % SHOWN_EVERY == 0:
                show(f"{number} of {draws} folders written")
    assert process.wait() == 0, (output / "log.txt").read_text()[-2000:]


def ours(folder, result):
    """Our answers and theirs in one form."""
    chosen, theirs = result["chosen"], result["answers"]
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
            return found, softmax(np.array(theirs))
        return found, expit(theirs) if chosen["activation"] == "missing" else theirs
    return answers, np.reshape(theirs, -1)


def of_encoders(folder, result):
    """The same of the folders of encoders.py."""
    given = np.load(f"{folder}.npz")
    found = load_huggingface(folder)({"input_ids": given["ids"], "input_mask": given["mask"]})
    if isinstance(found, dict):
        found = found.get("masked_lm_logits", found.get("sequence_output"))
    found = np.asarray(found)
    return found[given["mask"] > 0] if found.ndim == 3 else found, given["answer"]


def judged(both, folder, result, warns, caplog):
    """ "equal", "refused", "warned", or what the difference is."""
    caplog.clear()
    try:
        found, expected = (np.asarray(side, "float64") for side in both(folder, result))
    except UserError as error:
        return f"refused: {error}"
    if found.shape == expected.shape and np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max()):
        return "equal"
    warned = [record.getMessage() for record in caplog.records if warns(record.getMessage())]
    if warned:
        return f"warned: {warned}"
    difference = np.abs(found - expected).max() if found.shape == expected.shape else (found.shape, expected.shape)
    return f"silent: {difference}"


# By the program that writes the folders: how many, our answers and theirs, which warnings count, and the least share
# that is answered equally; refusing everything would be no differences either.
PROGRAMS = {
    "theirs.py": (
        DRAWS, ours, lambda said: "truncated to rows" not in said and "tf.function retracing" not in said, 0.5
    ),
    "encoders.py": (200, of_encoders, lambda said: "scores differ" in said, 0.4)
}  # fmt: skip


@pytest.mark.slow("folders")
@pytest.mark.timeout(1800 + SECONDS_A_DRAW * DRAWS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_folder_is_answered_otherwise_without_a_word(program, tmp_path, caplog, show):
    draws, both, warns, share = PROGRAMS[program]
    drawn(program, tmp_path, draws, show)
    caplog.set_level(standard_logging.WARNING)
    counts, silent = collections.Counter(), []
    for number in range(draws):
        if number and number % SHOWN_EVERY == 0:
            show(f"{number} of {draws} folders compared: {counts}, {len(silent)} silent")
        result = json.loads((tmp_path / f"{number}.json").read_text())
        if "refused" in result or "impossible" in result:
            counts["not answered there"] += 1
            continue
        verdict = judged(both, tmp_path / str(number), result, warns, caplog)
        word = verdict.split(":")[0]
        counts[word] += 1
        if os.environ.get("FOLDERS_VERBOSE"):
            print(number, verdict[:300], result, flush=True)
        if word == "silent":
            silent.append((number, verdict, result))
    print(counts)
    assert not silent, f"{len(silent)} silent differences, the first ones: {silent[:3]}; {counts}"
    assert counts["equal"] >= share * draws, counts
