"""The requests of a benchmark, serialized in advance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.client import messages
from serving.client.client import Client
from tfrecords.base.errors import refuse
from tfrecords.corpus import read_documents

# Different requests of one workload: enough that no cache below us answers, few enough to have a reference for each.
DISTINCT = 16
# Rows of mixed lengths: enough that each run has the text's share of long ones.
DISTINCT_MIXED = 128
# Ids of random rows: above the special tokens of the usual vocabularies, below the size of small ones.
_LOWEST_ID, _HIGHEST_ID = 110, 1000
# ALBERT's ids, unless a tokenizer has others.
_CLS_ID, _SEP_ID = 2, 3
_FILLER = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an"


@dataclass(frozen=True)
class Workload:
    """Requests to send in turn, each as arrays and in serialized form.

    `length`: tokens per row or words per text, None for mixed lengths. `batch`: rows per request.
    """

    length: int | None
    batch: int
    unit: str
    requests: list[bytes]
    inputs: list[messages.Arrays]

    @property
    def name(self) -> str:
        return f"{'mixed' if self.length is None else self.length} {self.unit} x {self.batch}"


class WorkloadMaker:
    """Creates workloads of random rows, or of rows from a text file."""

    def __init__(
        self,
        client: Client,
        signature: messages.Signature,
        text_file: str | None = None,
        tokenizer: str | None = None,
    ):
        self._client, self._signature = client, signature
        self._takes_text = messages.text_input(self._signature) is not None
        refuse({
            f"the benchmark sends text or token ids; model '{client.model}' takes {self._signature}":
                not self._takes_text and messages.ids_input(self._signature) is None,
            "--text_file for a model that takes token ids needs --tokenizer=FOLDER_OR_FILE too":
                text_file and not self._takes_text and not tokenizer,
        })  # fmt: skip
        self.unit = "words" if self._takes_text else "tokens"
        self._texts = [sentence for document in read_documents(text_file) for sentence in document] if text_file else []
        self._tokenizer = None
        if tokenizer and not self._takes_text:
            # Imported here: a tokenizer may bring TensorFlow with it.
            from tfrecords.tokenizers.loading import load_tokenizer

            self._tokenizer = load_tokenizer(tokenizer)

    def of_length(self, length: int, batch: int = 1) -> Workload:
        """Returns random rows."""
        random, words = np.random.default_rng((0, length, batch)), _FILLER.split()
        rows: list = []
        for _ in range(DISTINCT * batch):
            if self._takes_text:
                rows.append(" ".join(words[i] for i in random.integers(len(words), size=length)))
            else:
                ids = random.integers(_LOWEST_ID, _HIGHEST_ID, size=max(length - 2, 0)).tolist()
                rows.append(self._framed(ids)[:length])
        return self._workload(length, batch, rows)

    def mixed(self, batch: int = 1, max_length: int = 512) -> Workload:
        """Returns random rows of the text file."""
        random = np.random.default_rng((0, batch))
        size = batch * max(DISTINCT, DISTINCT_MIXED // batch)
        rows: list = [self._texts[i] for i in random.integers(len(self._texts), size=size)]
        if not self._takes_text:
            rows = [self._framed(self._tokenizer.encode(text)[: max_length - 2]) for text in rows]
        return self._workload(None, batch, rows)

    def _framed(self, ids: Sequence[int]) -> list[int]:
        first, last = (self._tokenizer.cls_id, self._tokenizer.sep_id) if self._tokenizer else (_CLS_ID, _SEP_ID)
        return [first, *ids, last]

    def _workload(self, length: int | None, batch: int, rows: Sequence) -> Workload:
        requests, inputs = [], []
        arrays = messages.text_inputs if self._takes_text else messages.ids_inputs
        for start in range(0, len(rows), batch):
            inputs.append(arrays(self._signature, rows[start : start + batch]))
            requests.append(self._client.request(inputs[-1]).SerializeToString())
        return Workload(length, batch, self.unit, requests, inputs)
