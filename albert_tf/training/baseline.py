from collections.abc import Mapping

from albert_tf.tasks.metrics import CORRELATIONS
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.task import Task
from albert_tf.training.preparation import Split


def baseline_scores(task: Task, labelled: FeatureRows, split: Split) -> tuple[str, dict[str, float]] | None:
    """Returns the best constant prediction, as text, and its metrics; None if the task has none."""
    found = task.baseline(labelled)
    if found is None:
        return None
    answer, output = found
    return answer, task.score(split.examples, split.rows, [output] * len(split.rows))


def baseline_line(task: Task, labelled: FeatureRows, split: Split, metrics: Mapping[str, float]) -> str:
    """Returns a line that compares a constant prediction's scores with `metrics`; "" without such a prediction."""
    if not (found := baseline_scores(task, labelled, split)):
        return ""
    answer, scores = found
    shown = {name: value for name, value in scores.items() if value or not name.endswith(CORRELATIONS)}
    line = f"baseline: {', '.join(f'{name} {value:.4g}' for name, value in shown.items()) or 'none'} ({answer})"
    if metrics.get(task.main_metric, 1.0) <= scores[task.main_metric]:
        line += "; the model is no better: train longer (--num_train_epochs), or with another --learning_rate"
    return line
