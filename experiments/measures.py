"""What a finished run is asked beside its own held-out figures, each question once a run."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.analysis.distances import layer_distances
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.loading import load
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.training.evaluation import evaluate
from experiments import tasks
from experiments.runs import Run
from experiments.tables import Recipe, Scale
from tfrecords.reader import read_examples

_FEATURES = ("input_ids", "input_mask", "segment_ids")


class Asked(NamedTuple):
    """Holds what a question is asked of, and with.

    Attributes:
        run: that is done.
        examples: builds the examples of a recipe where they are missing.
        scale: of the table.
        tasks_dir: folder of the tasks' folders; None where there is none.
    """

    run: Run
    examples: Callable[[Recipe], Path]
    scale: Scale
    tasks_dir: Path | None = None


def pair_tasks(asked: Asked) -> dict[str, float]:
    """Asks the pair head whatever it was trained on whether held-out pairs are one text (NSP) and in order (SOP).

    That is the crossed accuracies of Lan et al. 2020, Table 5, each as the mean over the two kinds of pairs, so that
    always saying the same is 50 % however many there are of each (of short documents NSP makes more pairs of two). A
    head says 1 to a next sentence of another document, or to swapped segments: either is what does not go on. A model
    without a pair head is not asked.
    """
    recipe, model, found = asked.run.recipe, load(asked.run.model_folder).model, {}
    settings = asked.run.settings(Path())
    for task in ("nsp", "sop") if model.pair_task else ():
        is_own = recipe.build_settings().pair_task == task
        other = recipe if is_own else recipe.with_data(recipe.data | {"pair_task": task})
        batches = read_examples(str(asked.examples(other)), settings.eval_batch_size, training=False)
        batches = batches.take(settings.max_eval_steps or -1).as_numpy_iterator()
        found[f"{task}_accuracy"] = _balanced_accuracy(model, batches)
    return found


def _balanced_accuracy(model: AlbertPretrainer, batches: Iterable[dict[str, np.ndarray]]) -> float:
    """The mean over the labels of the share of their pairs that the pair head answers rightly."""
    names = (*_FEATURES, "masked_lm_positions")
    pairs = [
        (batch["next_sentence_labels"].ravel(), model.predict_on_batch({name: batch[name] for name in names}))
        for batch in batches
    ]
    labels = np.concatenate([found for found, _ in pairs])
    right = labels == np.concatenate([answer["pair_logits"].argmax(-1) for _, answer in pairs])
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def common_examples(asked: Asked) -> dict[str, float]:
    """Asks for the masked words of the scale's own held-out examples, which are the same for rows with other ones.

    A share of the documents that is larger holds out those of a smaller one, too, so that nobody was trained on them.
    """
    run, data = asked.run, asked.examples(asked.run.recipe.with_data(asked.scale.data))
    loaded, settings = load(run.model_folder), run.settings(data)
    # As many examples as its training looks at.
    steps = settings.max_eval_steps
    figures = evaluate(loaded.model, str(data), settings.eval_batch_size, steps, loaded.tokenizer)
    return {"common_loss": figures["masked_lm_loss"], "common_accuracy": figures["masked_lm_accuracy"]}


def distances(asked: Asked) -> dict[str, float]:
    """Measures how far each step moves what passes through it, on a batch of held-out rows (the paper's Figure 1).

    Of a pre-norm model each state is taken after the final norm, as `layer_distances` does.

    Returns:
        l2_1, degrees_1, l2_2, ... of each step, and l2_mean, l2_last, degrees_mean, degrees_last.
    """
    data, settings = asked.examples(asked.run.recipe), asked.run.settings(Path())
    batch = next(read_examples(str(data), settings.eval_batch_size, training=False).as_numpy_iterator())
    features = {name: batch[name] for name in _FEATURES}
    steps = layer_distances(encoder_of(load(asked.run.model_folder).model), features)
    found = {}
    for name in ("l2", "degrees"):
        values = [float(getattr(step, name)) for step in steps]
        found |= {f"{name}_{number}": value for number, value in enumerate(values, 1)}
        found |= {f"{name}_mean": float(np.mean(values)), f"{name}_last": values[-1]}
    return found


def _task(name: str) -> Callable[[Asked], dict[str, float]]:
    return lambda asked: {name: tasks.score(asked.run, asked.scale, name, asked.tasks_dir / tasks.FOLDERS[name])}


def early_exit(asked: Asked) -> dict[str, float]:
    """Fine-tunes on SST-2 with exits, and lets rows leave by patience (Zhou et al. 2020): `tasks.exit_scores`."""
    return tasks.exit_scores(asked.run, asked.scale, asked.tasks_dir / tasks.FOLDERS["early_exit"])


def settings_of(measure: str, scale: Scale, tasks_dir: Path | None = None) -> dict[str, Any]:
    """Says what the figures of a measure depend on beside the run and the corpus.

    Args:
        measure: of MEASURES or OF_TASKS, by name.
        scale: of the table.
        tasks_dir: as of `Asked`; without it the files of a task are not said.
    """
    if measure == "common_examples":
        return {"data": scale.data}
    if measure not in OF_TASKS:
        return {}
    folder = tasks_dir / tasks.FOLDERS[measure] if tasks_dir else None
    return {"finetuning": scale.finetuning} | ({"files": tasks.digest(folder)} if folder else {})


MEASURES: dict[str, Callable[[Asked], dict[str, float]]] = {
    "pair_tasks": pair_tasks,
    "common_examples": common_examples,
    "distances": distances,
}
# Those that need the files of tasks.
OF_TASKS = {name: _task(name) for name in tasks.FOLDERS} | {"early_exit": early_exit}
