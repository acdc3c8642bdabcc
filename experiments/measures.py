"""What a finished run is asked beside its own held-out figures, each question once a run."""

from collections.abc import Callable
from pathlib import Path

from albert_tf.loading import load
from albert_tf.training.evaluation import evaluate
from experiments.runs import Run
from experiments.tables import Recipe, Scale

# Builds the examples of a recipe where they are missing.
Examples = Callable[[Recipe], Path]


def pair_tasks(run: Run, examples: Examples, scale: Scale) -> dict[str, float]:
    """Asks the pair head whatever it was trained on whether held-out pairs are one text (NSP) and in order (SOP).

    That is the crossed accuracies of Lan et al. 2020, Table 5. A head says 1 to a next sentence of another document, or
    to swapped segments: either is what does not go on. A model without a pair head is not asked.
    """
    recipe, found = run.recipe, {}
    for task in ("nsp", "sop") if load(run.model_folder).model.pair_task else ():
        is_own = recipe.build_settings().pair_task == task
        figures = _figures(run, examples(recipe if is_own else recipe.with_data(recipe.data | {"pair_task": task})))
        (found[f"{task}_accuracy"],) = (
            figures[name] for name in ("next_sentence_accuracy", "sentence_order_accuracy") if name in figures
        )
    return found


def common_examples(run: Run, examples: Examples, scale: Scale) -> dict[str, float]:
    """Asks for the masked words of the scale's own held-out examples, which are the same for rows with other ones."""
    figures = _figures(run, examples(run.recipe.with_data(scale.data)))
    return {"common_loss": figures["masked_lm_loss"], "common_accuracy": figures["masked_lm_accuracy"]}


def _figures(run: Run, data: Path) -> dict[str, float]:
    """Of the run's model, on as many held-out examples as its training looks at."""
    loaded, settings = load(run.model_folder), run.settings(data)
    return evaluate(loaded.model, str(data), settings.eval_batch_size, settings.max_eval_steps, loaded.tokenizer)


MEASURES: dict[str, Callable[[Run, Examples, Scale], dict[str, float]]] = {
    "pair_tasks": pair_tasks,
    "common_examples": common_examples,
}
