"""The command `albert-tf evaluate` with a LiteRT version as --model."""

import functools
from pathlib import Path

import numpy as np

from albert_tf.run_evaluation import EvaluationSettings
from albert_tf.suites.run import evaluate_embeddings
from albert_tf.suites.sets import find_sets
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.training.file_evaluation import Evaluated, evaluate_model
from serving.lite import LiteModel
from tfrecords.base.errors import UserError, check_libraries
from tfrecords.base.script import run_main

# The kinds of task by those of answers.
_KINDS = {"classes": "classification", "labels": "multilabel", "numbers": "regression", "tags": "tagging"}


def main(settings: EvaluationSettings) -> None:
    """Evaluates a version on a table, or on a suite."""
    if given := settings.given(("depth", "train_data", "eval_data")):
        raise UserError(f"{given} is not for a LiteRT version; give --data_file=... or --suite=embeddings")
    model, folder = LiteModel(settings.model), Path(settings.model) / "evaluation"
    if settings.suite:
        sets = find_sets(settings.data_dir)
        check_libraries("--suite=embeddings", "evaluation", pytrec_eval="pytrec_eval-terrier")
        output_dir = settings.output_dir or str(folder / settings.suite)
        evaluate_embeddings(settings.model, sets, output_dir, batch_size=settings.batch_size, loaded=model)
        return
    answer = model.description.answer
    if answer.kind not in _KINDS or model.rows is None:
        raise UserError(
            f"'{settings.model}' answers {answer.kind}, or takes no texts; --data_file is for versions that give texts "
            "classes, labels, numbers or tags"
        )
    task = {"inputs": list(answer.inputs or ()), "threshold": answer.threshold}
    rows = model.rows
    in_rows = rows.tokenizer, rows.max_seq_length, functools.partial(_answers, model)
    evaluated = Evaluated(_KINDS[answer.kind], answer.labels, task, *in_rows)
    output_dir = settings.output_dir or str(folder / Path(settings.data_file).name.partition(".")[0])
    evaluate_model(evaluated, settings.model, FileOptions.of(settings), "", output_dir)


def _answers(model: LiteModel, rows: FeatureRows) -> list[np.ndarray]:
    ids, segments = (rows.tokens[name] for name in ("input_ids", "segment_ids"))
    given = [
        {"input_ids": ids[row], "segment_ids": segments[row], "lengths": np.array(len(ids[row]), np.int32)}
        for row in range(len(rows))
    ]
    name = model.description.answer.KINDS[model.description.answer.kind]
    return [np.atleast_1d(one[name]) for one in model.run(given, (name,))]


def run() -> None:
    """Runs the command."""
    run_main(main, EvaluationSettings)
