from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.tasks.squad.data import SquadExample, check_places, read_squad
from albert_tf.tasks.squad.scorer import evaluate_v1, evaluate_v2, threshold_of_best_f1
from albert_tf.tasks.squad.windows import SpanRows, make_rows
from albert_tf.tasks.task import Hyperparameters, Task
from tfrecords.answers.spans import MAX_ANSWER_LENGTH, Answers, find_answers
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

_VERSIONS = {"squad1": "1.1", "squad2": "2.0"}
# Flags and README of google-research/albert; of SQuAD 2.0 rate, steps and warm-up are the paper's Table 14.
_DEFAULTS = {
    "squad1": Hyperparameters(
        learning_rate=5e-5, train_batch_size=48, num_train_epochs=2, warmup_proportion=0.1, max_seq_length=384
    ),
    "squad2": Hyperparameters(
        learning_rate=3e-5, train_batch_size=48, num_train_steps=8144, num_warmup_steps=814, max_seq_length=384
    ),
}


class SquadTask(Task):
    """SQuAD, whose answers are spans of a passage; in 2.0 a question may have none.

    A `span_head` of "" means "plain" for 1.1 and "joint" for 2.0.
    """

    kind = "spans"
    inputs = ("question", "context")
    labels = None
    needs_pooler = False

    def __init__(self, name: str, data_dir: str, span_head: str = ""):
        self.name, self.data_dir = name, Path(data_dir)
        self.defaults, self.version = _DEFAULTS[name], _VERSIONS[name]
        self.answers_always = name == "squad1"
        self.joint = (span_head or ("plain" if self.answers_always else "joint")) == "joint"
        # Null odds above which no answer is likelier, until a labelled split determines them.
        self.null_threshold = None if self.answers_always else 0.0

    main_metric = "f1"

    def _paths(self, name: str) -> list[Path]:
        return [path for one in (name, f"{name}.gz") if (path := self.data_dir / one).is_file()]

    def read(self, split: str) -> list[SquadExample] | None:
        stem = f"{split}-v{self.version}.json"
        paths = self._paths(stem)
        if not paths and split == "train":
            raise UserError(f"'{self.data_dir}' holds neither {stem} nor {stem}.gz")
        if not paths:
            return None
        examples = read_squad(paths[0], labelled=split not in self.test_splits)
        if self.answers_always and split not in self.test_splits:
            for example in examples:
                if not example.answers:
                    raise UserError(
                        f"'{paths[0]}': question '{example.id}' has no answer; --task=squad2 is for such files"
                    )
        if split == "train":
            check_places(examples, paths[0])
        return examples

    def rows(
        self, examples: Sequence[SquadExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> SpanRows:
        return make_rows(examples, tokenizer, max_seq_length, training)

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        # A plain head's starts may fall into the question's best ends; more of them cost nothing.
        start_top = 5 if self.joint else 20
        return AlbertSpanPredictor(
            encoder, joint=self.joint, start_top=start_top, max_answer_length=MAX_ANSWER_LENGTH, dropout=dropout
        )

    def score(
        self, examples: Sequence[SquadExample], rows: SpanRows, outputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, float]:
        """Returns the official scores, for 2.0 at the threshold with the best F1."""
        return self._score(examples, find_answers(examples, rows, outputs))

    def _score(self, examples: Sequence[SquadExample], answers: Sequence[Answers]) -> dict[str, float]:
        texts = {example.id: answer.text(None) for example, answer in zip(examples, answers)}
        if self.answers_always:
            return evaluate_v1(examples, texts)
        odds = {example.id: answer.null_odds for example, answer in zip(examples, answers)}
        self.null_threshold = threshold_of_best_f1(examples, texts, odds)
        return evaluate_v2(examples, texts, odds, self.null_threshold)

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[SquadExample],
        rows: SpanRows,
        outputs: Sequence[Mapping[str, Any]],
    ) -> list[Path]:
        answers = find_answers(examples, rows, outputs)
        if split not in self.test_splits:
            self._score(examples, answers)
        return write_answers(folder / split, examples, answers, self.null_threshold)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"null_threshold": self.null_threshold}


def write_answers(
    folder: Path, examples: Sequence[SquadExample], answers: Sequence[Answers], threshold: float | None
) -> list[Path]:
    """Writes predictions.json, nbest_predictions.json and, with a `threshold`, null_odds.json."""
    ids = [example.id for example in examples]
    contents = {
        "predictions": {one: answer.text(threshold) for one, answer in zip(ids, answers)},
        "nbest_predictions": {one: _nbest(answer) for one, answer in zip(ids, answers)},
    }
    if threshold is not None:
        contents["null_odds"] = {one: answer.null_odds for one, answer in zip(ids, answers)}
    folder = files.make_output_dir(folder)
    for name, content in contents.items():
        files.write_json(folder / f"{name}.json", content)
    return [folder / f"{name}.json" for name in contents]


def _nbest(answer: Answers) -> list[dict[str, str | float]]:
    if not answer.candidates:
        return []
    scores = np.array([candidate.score for candidate in answer.candidates])
    odds = np.exp(scores - scores.max())
    return [
        {"text": candidate.text, "probability": float(share), "score": candidate.score}
        for candidate, share in zip(answer.candidates, odds / odds.sum())
    ]
