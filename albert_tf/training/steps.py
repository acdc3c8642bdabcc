import keras

from albert_tf.training.devices import Devices


class Steps:
    """The base of training and evaluation steps, whose metrics accumulate until `results` is called.

    `surveys`: whether a first pass computes the whole batch's values that the loss compares (gradient caching).
    """

    def __init__(self, model: keras.Model, devices: Devices, parts: int, surveys: bool):
        self.model, self.devices, self.parts = model, devices, parts
        self._surveys = surveys and getattr(model, "needs_survey", False)
        self._loss = next((metric for metric in model.metrics if metric.name == "loss"), None)

    def sync(self) -> None:
        """Brings the model's variables up to date."""

    def running(self) -> dict[str, float]:
        """Returns the means of the metrics since the last call of `results`."""
        self.sync()
        return {name: float(value) for name, value in self.model.get_metrics_result().items()}

    def results(self) -> dict[str, float]:
        """Returns the same means as `running`, and resets them."""
        figures = self.running()
        self.model.reset_metrics()
        return figures
