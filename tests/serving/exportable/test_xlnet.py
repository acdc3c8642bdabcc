"""XLNet: padding may be in front. The rest is in the contract."""

import numpy as np
import pytest

from serving.exportable import ExportOptions, make_exportable
from tests.serving.conftest import assert_close

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.mark.parametrize("head", ["classifier", "multiple choice", "spans"])
def test_padding_may_be_in_front(serve, head):
    model, served = serve(head, family="xlnet")
    random = np.random.default_rng(0)
    mask = np.arange(7) >= 7 - np.array([7, 3, 5, 1])[:, None]
    ids, segments = random.integers(5, 60, mask.shape) * mask, np.where(mask, random.integers(0, 2, mask.shape), 3)
    rows = {"input_ids": ids, "input_mask": 1 * mask, "segment_ids": segments}
    if head == "multiple choice":
        rows = {name: values[None] for name, values in rows.items()}
    # What stands behind a row is padding too, whatever its ids are.
    fill = {"input_ids": 7, "input_mask": 0, "segment_ids": 3}
    wide = {
        name: np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 2)], constant_values=fill[name])
        for name, values in rows.items()
    }
    found, expected = served("masked", **wide), model(rows)
    name = "start_log_probs" if head == "spans" else "logits"
    assert_close(found[name], expected[name] if head == "spans" else expected)


SIGNATURES = """
classifier | remembering xlnet | classify masked int64
spans | remembering xlnet | masked int64
classifier | xlnet | classify masked int64
# Words for masks come of its query stream, which exports do not compute.
permutation pretrainer | xlnet | tokens masked int64
exiting classifier | albert | early_exit classify masked int64
pretrainer | albert | fill_mask sparse sentence_order masked int64
"""


@pytest.mark.parametrize("line", [line for line in SIGNATURES.strip().splitlines() if line[0] != "#"])
def test_every_model_offers_what_it_can_answer(make_model, line):
    head, family, names = line.split(" | ")
    found = make_exportable(make_model(head, family=family), ExportOptions(24)).signatures().keys()
    assert found == {"serving_default", *names.split()}
