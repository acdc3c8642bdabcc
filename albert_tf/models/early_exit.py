"""Models that can answer after every depth step, and are trained to."""

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import plan
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.encoder_model import DenseHeadModel


class EarlyExitModel(DenseHeadModel):
    """A DenseHeadModel that, with `early_exit`, has a head after every depth step; pooler and dropout are shared.

    Its loss is then the mean of all steps' losses, each weighted by the number of its step, as PABEE's (Zhou et al.
    2020, section 3.3). `call` returns the last step's logits, but a list of every step's when training.
    """

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        units: int,
        dropout: float = 0.1,
        early_exit: bool = False,
        **kwargs,
    ):
        config = getattr(encoder, "config", encoder)
        super().__init__(encoder, units, dropout, len(plan(config)) - 1 if early_exit else 0, **kwargs)
        self.early_exit = early_exit

    @property
    def exit_heads(self) -> list[keras.layers.Layer]:
        """A dense layer for each step, the last one being `head`; [] without `early_exit`."""
        return [*self.inner_heads, self.head] if self.early_exit else []

    def step_vectors(self, hidden):
        """What a head sees of a step's output [batch, sequence, hidden_size]: the pooled [batch, hidden_size]."""
        return self.encoder.pooler(hidden[:, 0])

    def exit_logits(self, features, training=False):
        """Every step's float32 logits, each as `call` returns them."""
        states = self.encoder(features, training=training, output_hidden_states=True)["hidden_states"][1:]
        return [self.logits(head, self.step_vectors(state), training) for head, state in zip(self.exit_heads, states)]

    def call(self, features, training=False):
        if self.early_exit and training:
            return self.exit_logits(features, training=True)
        return super().call(features, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss
        if not isinstance(y_pred, list):
            return loss(x, y, y_pred, sample_weight, training=training)
        losses = [step * loss(x, y, logits, sample_weight, training=training) for step, logits in enumerate(y_pred, 1)]
        return sum(losses) / sum(range(1, len(losses) + 1))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        last = y_pred[-1] if isinstance(y_pred, list) else y_pred
        return super().compute_metrics(x, y, last, sample_weight=sample_weight)

    def get_config(self):
        return {**super().get_config(), "early_exit": self.early_exit}
