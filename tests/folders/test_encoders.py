"""Folders of Nomic, GTE, EuroBERT and ModernBERT with odd keys: answered as transformers does, refused, or warned of.

It needs PyTorch and transformers, here or in the environment of FOLDERS_PYTHON; see test_folders.py.
"""

import collections
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from albert_tf.checkpoints import load_huggingface
from tests.folders.test_folders import NEEDED, PYTHON, SEED
from tfrecords.base.errors import UserError

DRAWS = 200


def judged(folder, caplog):
    """ "equal", "refused", "warned" or "silent", and why."""
    caplog.clear()
    given = np.load(f"{folder}.npz")
    try:
        found = load_huggingface(folder)({"input_ids": given["ids"], "input_mask": given["mask"]})
    except UserError as error:
        return "refused", str(error)
    if isinstance(found, dict):
        found = found.get("masked_lm_logits", found.get("sequence_output"))
    found = np.asarray(found)
    found = found[given["mask"] > 0] if found.ndim == 3 else found
    expected = given["answer"]
    if found.shape == expected.shape and np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max()):
        return "equal", ""
    far = np.abs(found - expected).max() if found.shape == expected.shape else (found.shape, expected.shape)
    warnings = [record.getMessage() for record in caplog.records if "scores differ" in record.getMessage()]
    return ("warned", warnings[0]) if warnings else ("silent", str(far))


@pytest.mark.slow("folders")
@pytest.mark.timeout(1800)
def test_no_odd_key_of_a_new_family_is_answered_otherwise_without_a_word(tmp_path, caplog):
    if subprocess.run([PYTHON, "-c", NEEDED], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no torch, transformers and sentence_transformers (requirements/folders.txt)")
    program = Path(__file__).with_name("encoders.py")
    made = subprocess.run([PYTHON, program, tmp_path, str(SEED), str(DRAWS)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    counts, silent = collections.Counter(), []
    for number in range(DRAWS):
        result = json.loads((tmp_path / f"{number}.json").read_text())
        if "refused" in result:
            counts["not answered there"] += 1
            continue
        verdict, why = judged(tmp_path / str(number), caplog)
        counts[verdict] += 1
        if verdict == "silent":
            silent.append((number, why, result))
        print(number, verdict, why[:200], result)
    print(counts)
    assert not silent, f"{len(silent)} silent differences, the first ones: {silent[:3]}; {counts}"
    assert counts["equal"] >= 0.4 * DRAWS, counts
