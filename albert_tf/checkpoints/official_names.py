"""What google-research/albert, google-research/bert and brightmart/albert_zh call each variable."""

import re
from collections.abc import Collection

from absl import logging

from albert_tf.checkpoints.variables import Source, mentions
from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import plan
from tfrecords.base.errors import UserError

_DENSE = ("kernel", "bias")
_NORM = ("gamma", "beta")
_EMBEDDINGS = {
    "word_embeddings": "word_embeddings",
    "token_type_embeddings": "token_type_embeddings",
    "position_embeddings": "position_embeddings",
    "layer_norm/gamma": "LayerNorm/gamma",
    "layer_norm/beta": "LayerNorm/beta",
}
_HEADS = {
    "pooler/kernel": Source("bert/pooler/dense/kernel"),
    "pooler/bias": Source("bert/pooler/dense/bias"),
    "masked_lm/dense/kernel": Source("cls/predictions/transform/dense/kernel"),
    "masked_lm/dense/bias": Source("cls/predictions/transform/dense/bias"),
    "masked_lm/layer_norm/gamma": Source("cls/predictions/transform/LayerNorm/gamma"),
    "masked_lm/layer_norm/beta": Source("cls/predictions/transform/LayerNorm/beta"),
    "masked_lm/output_bias": Source("cls/predictions/output_bias"),
    "pair/kernel": Source("cls/seq_relationship/output_weights", transposed=True),
    "pair/bias": Source("cls/seq_relationship/output_bias"),
    # Fine-tuned: run_classifier's head, BERT's for SQuAD 1.1, and ALBERT's joint one for SQuAD 2.
    "classifier/kernel": Source("output_weights", transposed=True),
    "classifier/bias": Source("output_bias"),
    "span/kernel": Source("cls/squad/output_weights", transposed=True),
    "span/bias": Source("cls/squad/output_bias"),
    "start/kernel": Source("start_logits/dense/kernel"),
    "start/bias": Source("start_logits/dense/bias"),
    "end_hidden/kernel": Source("end_logits/dense_0/kernel"),
    "end_hidden/bias": Source("end_logits/dense_0/bias"),
    "end_norm/gamma": Source("end_logits/LayerNorm/gamma"),
    "end_norm/beta": Source("end_logits/LayerNorm/beta"),
    "end/kernel": Source("end_logits/dense_1/kernel"),
    "end/bias": Source("end_logits/dense_1/bias"),
    "answer_hidden/kernel": Source("answer_class/dense_0/kernel"),
    "answer_hidden/bias": Source("answer_class/dense_0/bias"),
    "answer/kernel": Source("answer_class/dense_1/kernel"),
}


def sources_of(config: AlbertConfig, tensors: Collection[str]) -> dict[str, Source]:
    """Our names to those in a checkpoint of `tensors`, by the code base that wrote it.

    Where a group or inner group of the model is not in the checkpoint, its first is taken, as modeling.py:352-408
    does: so a model with more groups starts from one with fewer.
    """
    if mentions(tensors, "/layer_shared/"):
        # Only the words are factorised: word_embeddings_2 is the projection, and it has no bias.
        projection = {"embeddings/projection/kernel": Source("bert/embeddings/word_embeddings_2")}
        return _common() | projection | _bert_blocks(["layer_shared"])
    if mentions(tensors, "/layer_0/"):
        return _common() | _bert_blocks([f"layer_{i}" for i in range(config.num_steps)])
    sources = {name: source._replace(name=_fold(source.name, tensors)) for name, source in _albert(config).items()}
    folded = sorted({source.name for name, source in _albert(config).items() if source.name != sources[name].name})
    if folded:
        logging.warning("not in the checkpoint, taken from its first group: %s", ", ".join(folded))
    return sources


def sources_for(config: AlbertConfig) -> dict[str, Source]:
    """Our names to those that a checkpoint of this configuration is to be written with.

    Raises:
        UserError: the configuration has no form in any of the three code bases.
    """
    if config.hidden_act not in ("gelu", "relu", "tanh", "linear"):
        raise UserError(f"the official code has no hidden_act '{config.hidden_act}'; its gelu is the tanh form, 'gelu'")
    if config.always_project and config.embedding_size == config.hidden_size:
        raise UserError("the official code has no projection where embedding_size equals hidden_size")
    if config.is_projected and config.factorization == "word":
        if config.sharing != "all" or config.num_hidden_groups > 1 or config.inner_group_num > 1:
            raise UserError("factorization 'word' has an official form only with one block for all layers")
        return sources_of(config, ["/layer_shared/"])
    if config.sharing == "none" and not config.is_projected:
        return sources_of(config, ["/layer_0/"])
    return _albert(config)


def _common():
    embeddings = {f"embeddings/{ours}": Source(f"bert/embeddings/{theirs}") for ours, theirs in _EMBEDDINGS.items()}
    return embeddings | _HEADS


def _albert(config):
    sources, inner = _common(), config.inner_group_num
    for part in _DENSE:
        sources[f"embeddings/projection/{part}"] = Source(f"bert/encoder/embedding_hidden_mapping_in/{part}")
    for step in plan(config):
        attention, feed_forward = f"attention_{step.attention}", f"feed_forward_{step.feed_forward}"
        first, second = (
            f"bert/encoder/transformer/group_{index // inner}/inner_group_{index % inner}" for index in step
        )
        for part in _DENSE:
            for name in ("query", "key", "value"):
                sources[f"{attention}/{name}/{part}"] = Source(f"{first}/attention_1/self/{name}/{part}")
            sources[f"{attention}/output/{part}"] = Source(f"{first}/attention_1/output/dense/{part}")
            sources[f"{feed_forward}/intermediate/{part}"] = Source(f"{second}/ffn_1/intermediate/dense/{part}")
            sources[f"{feed_forward}/output/{part}"] = Source(f"{second}/ffn_1/intermediate/output/dense/{part}")
        for part in _NORM:
            sources[f"{attention}/layer_norm/{part}"] = Source(f"{first}/LayerNorm/{part}")
            sources[f"{feed_forward}/layer_norm/{part}"] = Source(f"{second}/LayerNorm_1/{part}")
    return sources


def _bert_blocks(layers):
    sources = {}
    for index, layer in enumerate(layers):
        scope, attention, feed_forward = f"bert/encoder/{layer}", f"attention_{index}", f"feed_forward_{index}"
        for part in _DENSE:
            for name in ("query", "key", "value"):
                sources[f"{attention}/{name}/{part}"] = Source(f"{scope}/attention/self/{name}/{part}")
            sources[f"{attention}/output/{part}"] = Source(f"{scope}/attention/output/dense/{part}")
            sources[f"{feed_forward}/intermediate/{part}"] = Source(f"{scope}/intermediate/dense/{part}")
            sources[f"{feed_forward}/output/{part}"] = Source(f"{scope}/output/dense/{part}")
        for part in _NORM:
            sources[f"{attention}/layer_norm/{part}"] = Source(f"{scope}/attention/output/LayerNorm/{part}")
            sources[f"{feed_forward}/layer_norm/{part}"] = Source(f"{scope}/output/LayerNorm/{part}")
    return sources


def _fold(name, tensors):
    group_0 = re.sub(r"/group_\d+/", "/group_0/", name)
    inner_0 = re.sub(r"/inner_group_\d+/", "/inner_group_0/", name)
    both = re.sub(r"/inner_group_\d+/", "/inner_group_0/", group_0)
    return next((candidate for candidate in (name, group_0, inner_0, both) if candidate in tensors), name)
