"""Losses that train an embedder on pairs of texts.

Each computes a loss of sentence-transformers from vectors of queries [rows, dimensions] and documents [rows,
documents, dimensions], and targets [rows, numbers]. A row's first document is the positive; others are negatives.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from albert_tf.base import Tensor
from albert_tf.models.heads import unit_length
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class PairLoss:
    """A loss on pairs of texts, with its settings.

    Args:
        name: one of `albert_tf.choices.PAIR_LOSSES`.
        temperature: divides cosines before their softmax.
        symmetric: whether to rank queries for each positive, too.
        margin: how much farther, in Euclidean distance, a negative should be than the positive.
        dims: widths (Matryoshka, arXiv:2205.13147): vectors are cut to each width and scaled to length 1, and the
            losses added; () for whole vectors only.
    """

    name: str = "multiple_negatives_ranking"
    temperature: float = 0.05
    symmetric: bool = False
    margin: float = 1.0
    dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise UserError(f"the loss '{self.name}' is unknown; choose one of {', '.join(LOSSES)}")
        object.__setattr__(self, "dims", tuple(self.dims))
        if len(set(self.dims)) < len(self.dims):
            raise UserError(f"dims={self.dims} name a width twice; leave one out")

    def __call__(self, queries: Tensor, documents: Tensor, targets: Tensor = None) -> Tensor:
        function = LOSSES[self.name]
        if not self.dims:
            return function(queries, documents, targets, self)
        cut = [[unit_length(side[..., :width]) for side in (queries, documents)] for width in self.dims]
        return sum(function(*sides, targets, self) for sides in cut)


def multiple_negatives_ranking(queries: Tensor, documents: Tensor, targets: Any, loss: PairLoss) -> Tensor:
    """Returns the mean cross-entropy of each query's positive among the documents of all rows (InfoNCE).

    Logits are cosines over the temperature (arXiv:1705.00652). `symmetric` averages this with the cross-entropy of each
    positive's query among all queries.
    """
    queries, documents = unit_length(queries), unit_length(documents)
    positives = documents[:, 0]
    candidates = ops.reshape(documents, (-1, documents.shape[-1]))
    found = ops.sum(queries * positives, axis=-1) / loss.temperature
    among = ops.logsumexp(ops.matmul(queries, ops.transpose(candidates)) / loss.temperature, axis=-1)
    if loss.symmetric:
        back = ops.logsumexp(ops.matmul(positives, ops.transpose(queries)) / loss.temperature, axis=-1)
        among = (among + back) / 2
    return ops.mean(among - found)


def cosent(queries: Tensor, documents: Tensor, targets: Tensor, loss: PairLoss) -> Tensor:
    """Returns log(1 + sum of exp((cosine i - cosine j) / temperature)) over all pairs with score i < score j.

    Source: https://kexue.fm/archives/8847
    """
    cosines = ops.sum(unit_length(queries) * unit_length(documents[:, 0]), axis=-1) / loss.temperature
    scores = targets[:, 0]
    differences = ops.where(
        scores[:, None] < scores[None], cosines[:, None] - cosines[None], ops.full_like(cosines[:, None], -1e9)
    )
    return ops.logsumexp(ops.concatenate([ops.zeros_like(cosines[:1]), ops.reshape(differences, (-1,))]))


def triplet(queries: Tensor, documents: Tensor, targets: Any, loss: PairLoss) -> Tensor:
    """Returns the mean of max(0, distance to the positive - distance to a negative + margin), Euclidean.

    Source: arXiv:1503.03832, as in Sentence-BERT (arXiv:1908.10084), section 3.
    """
    # Equal texts have the distance 0, where a square root has no gradient.
    distances = ops.sqrt(ops.maximum(ops.sum(ops.square(queries[:, None] - documents), axis=-1), 1e-12))
    return ops.mean(ops.relu(distances[:, :1] - distances[:, 1:] + loss.margin))


def mse(queries: Tensor, documents: Tensor, targets: Tensor, loss: PairLoss) -> Tensor:
    """Returns the mean squared difference from a teacher's vectors, concatenated in `targets`.

    Sources: arXiv:2004.09813; LEAF (arXiv:2509.12539).
    """
    vectors = ops.concatenate([queries[:, None], documents], axis=1)
    return ops.mean(ops.square(ops.reshape(vectors, ops.shape(targets)) - targets))


def margin_mse(queries: Tensor, documents: Tensor, targets: Tensor, loss: PairLoss) -> Tensor:
    """Returns the mean squared error of dot-product margins (positive - negative) to `targets`, [rows, negatives].

    Source: arXiv:2010.02666.
    """
    products = ops.sum(queries[:, None] * documents, axis=-1)
    return ops.mean(ops.square(products[:, :1] - products[:, 1:] - targets))


LOSSES: dict[str, Callable[..., Tensor]] = {
    function.__name__: function for function in (multiple_negatives_ranking, cosent, triplet, mse, margin_mse)
}
