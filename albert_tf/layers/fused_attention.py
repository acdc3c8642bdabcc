"""Self-attention by cuDNN's fused kernel, which stores no scores; JAX only."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.extension import setting_of
from albert_tf.layers.block import ATTEND, Attention, TokenPairs, attend_to_all
from tfrecords.base.errors import UserError

# Hopper's limit and divisor; Keras queries the GPU for the rest.
_LARGEST_HEAD, _HEAD_MULTIPLE = 256, 8


@contextlib.contextmanager
def fused_attention(on: bool = True) -> Iterator[None]:
    """A context manager: attention traced inside uses the fused kernel where possible, then without probabilities."""
    before = ATTEND.set(_attend if on else attend_to_all)
    try:
        yield
    finally:
        ATTEND.reset(before)


def _attend(attention: Attention, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, *others: Any) -> Tensor:
    # cuDNN has no backward pass with a bias for odd numbers of columns; Keras does not check this.
    if query.shape[2] % 2:
        return attend_to_all(attention, query, key, value, pairs, *others)
    return attend(query, key, value, pairs.bias, attention.score_scale)


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Returns softmax(query @ key^T * scale + bias) @ value, [batch, heads, sequence, head_size].

    `bias` is [batch, 1, 1 or sequence, sequence], or None.
    """
    if bias is not None:
        # The kernel takes a bias for all queries only, no mask and no bias of a single query.
        batch, _, length, _ = query.shape
        bias = ops.stop_gradient(ops.broadcast_to(ops.cast(bias, query.dtype), (batch, 1, length, length)))
    # XLA cancels the transposes against those that split and join heads.
    turned = (ops.transpose(array, (0, 2, 1, 3)) for array in (query, key, value))
    return ops.transpose(ops.dot_product_attention(*turned, bias=bias, scale=scale), (0, 2, 1, 3))


def check(config: AlbertConfig, dtype_policy: str) -> None:
    """Raises UserError if a run with --fused_attention cannot use cuDNN's kernel."""
    has = {
        f"KERAS_BACKEND=jax (it is {keras.backend.backend()})": keras.backend.backend() == "jax",
        f"--dtype_policy=mixed_bfloat16 (it is {dtype_policy})": dtype_policy == "mixed_bfloat16",
        "attention without dropout (attention_probs_dropout_prob or --albert_dropout 0, it is "
        f"{config.attention_probs_dropout_prob})": not config.attention_probs_dropout_prob,
        **{f"no {setting_of(config, one)}": one.fuses for one in config.extensions},
        f"heads of at most {_LARGEST_HEAD} columns, a multiple of {_HEAD_MULTIPLE} (they have {config.head_size})": (
            config.head_size <= _LARGEST_HEAD and not config.head_size % _HEAD_MULTIPLE
        ),
    }
    for what, is_there in has.items():
        if not is_there:
            raise UserError(f"--fused_attention needs {what}")
    import jax

    if jax.default_backend() != "gpu":
        raise UserError(f"--fused_attention needs a GPU that JAX sees (it computes on: {jax.default_backend()})")
    _try(config.head_size)


# Keras falls back silently where the kernel is missing, so it is tried here.
def _try(head_size: int) -> None:
    row = ops.zeros((1, 8, 1, head_size), "bfloat16")
    try:
        ops.dot_product_attention(row, row, row, bias=ops.zeros((1, 1, 8, 8), "bfloat16"), flash_attention=True)
    except Exception as error:  # JAX and Keras raise various types.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"--fused_attention: no such kernel here for heads of {head_size} columns: {reason}") from error
