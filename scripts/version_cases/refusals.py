"""Settings that are refused: the table of which the sentences are compared."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .configurations import SIZES
from .filled import BATCH, WORDS
from .places import take

CONFIGURATIONS: list[dict[str, Any]] = [
    {"hidden_size": 9},
    {"hidden_size": 0},
    {"hidden_size": "8"},
    {"use_bias": 1},
    {"hidden_act": "gelo"},
    {"sharing": "some"},
    {"hidden_dropout_prob": 1.0},
    {"layer_norm_eps": float("nan")},
    {"num_hidden_groups": 9},
    {"position_offset": 16},
    {"position_type": "rotary", "num_attention_heads": 8},
    {"position_type": "rotary", "position_offset": 2},
    {"position_type": "rotary", "rotary_theta": 0.0},
    {"gate_init": 2.0},
    {"halting": "act", "halting_threshold": 1.0},
    {"random_depth_min": 9},
    {"global_attention_every": 2},
    {"attention_window": 2, "global_attention_every": 2, "random_depth_min": 1},
    {"random_depth_min": 1, "halting": "act"},
    {"depth_plan": "1+x"},
    {"depth_plan": "1x9"},
    {"depth_plan": "1x3", "num_hidden_groups": 3},
    {"depth_plan": "1x3", "sharing": "none"},
    {"depth_lora_rank": 2, "sharing": "none"},
    {"depth_lora_rank": 2, "sharing": "ffn", "depth_lora_target": "attention"},
    {"depth_lora_rank": 2, "depth_plan": "1+1+1"},
    {"equilibrium_solver": "anderson", "equilibrium_damping": 0.0},
    {"equilibrium_solver": "fixed_point", "equilibrium_tolerance": 0.0, "equilibrium_damping": 0.5},
    {"equilibrium_solver": "anderson", "equilibrium_tolerance": 1.0},
    {"equilibrium_solver": "anderson", "step_signal": "learned"},
    {"equilibrium_solver": "anderson", "depth_lora_rank": 2},
    {"equilibrium_solver": "anderson", "halting": "act"},
    {"equilibrium_solver": "anderson", "sharing": "none"},
    {"equilibrium_phantom_steps": 9, "equilibrium_max_steps": 2, "equilibrium_solver": "fixed_point",
     "equilibrium_tolerance": 0.0},
    {"attention_type": "uni"},
    {"clamp_length": 2},
    {"memory_length": 2},
    {"untie_biases": True},
    {"position_type": "relative", "position_offset": 2},
    {"position_type": "relative", "attention_window": 2},
    {"position_type": "relative", "halting": "act"},
    {"position_type": "relative", "memory_length": 2, "step_signal": "learned"},
    {"position_type": "relative", "memory_length": 2, "norm_position": "pre"},
    {"position_type": "relative", "reuse_length": 2},
    {"position_type": "relative", "hidden_size": 7, "num_attention_heads": 1},
    {"hiden_size": 8},
]  # fmt: skip

_TRAIN = ("--train_data={place}/empty", "--output_dir={place}/run")
_FINE = ("--task=classification", "--data_dir={place}/classes", "--output_dir={place}/run")
_BUILD = ("--input={place}/corpus.txt", "--output_dir={place}/data", "--tokenizer={place}/vocab.txt")
_EXPORT = ("--model={place}/broken.keras", "--output_dir={place}/servable")
COMMAND_LINES: dict[str, list[tuple[str, ...]]] = {
    "tfrecords.train_tokenizer": [
        (),
        ("--input={place}/none.txt", "--output_prefix={place}/spm"),
        ("--input={place}/corpus.txt", "--output_prefix={place}/spm", "--vocab_size=9"),
        ("--input={place}/corpus.txt", "--output_prefix={place}/spm", "--kind=bpe", "--keep_accents"),
        ("--input={place}/corpus.txt", "--output_prefix={place}/spm", "--vocab_size=many"),
    ],
    "tfrecords.create_pretraining_data": [
        (),
        (*_BUILD, "--max_seq_length=4"),
        (*_BUILD, "--input_format=full-sentences"),
        (*_BUILD, "--line_documents"),
        (*_BUILD, "--objective=permutation", "--masking=dynamic"),
        (*_BUILD, "--objective=permutation", "--streams=3"),
        (*_BUILD, "--objective=permutation", "--max_seq_length=16", "--reuse_length=14"),
        (*_BUILD, "--masked_lm_prob=1.5"),
        (*_BUILD, "--pair_task=both"),
        (*_BUILD, "--no_such_flag=1"),
        ("--input={place}/empty.txt", "--output_dir={place}/data", "--tokenizer={place}/vocab.txt"),
        ("--input={place}/corpus.txt", "--output_dir={place}/data", "--tokenizer={place}/none.txt"),
    ],
    "tfrecords.inspect_examples": [(), ("--input={place}/empty",)],
    "albert_tf.run_pretraining": [
        (),
        _TRAIN,
        (*_TRAIN, "--config=albert_bass"),
        (*_TRAIN, "--config={place}/broken.json"),
        (*_TRAIN, "--config={place}/config.json"),
        (*_TRAIN, "--config={place}/config.json", "--num_train_steps=5", "--num_warmup_steps=9"),
        (*_TRAIN, "--config={place}/config.json", "--memory_length=4"),
        (*_TRAIN, "--config={place}/config.json", "--train_batch_size=9", "--gradient_accumulation_steps=2"),
        (*_TRAIN, "--config={place}/config.json", "--second_from_step=3"),
        (*_TRAIN, "--config={place}/config.json", "--optimizer=sgd"),
        (*_TRAIN, "--config={place}/config.json", "surplus"),
    ],
    "albert_tf.run_finetuning": [
        (),
        _FINE,
        (*_FINE, "--config={place}/config.json", "--init_from={place}/empty"),
        (*_FINE, "--config={place}/config.json"),
        (*_FINE, "--init_from={place}/empty"),
        (*_FINE, "--config={place}/config.json", "--depth=2"),
        (*_FINE, "--config={place}/config.json", "--seeds=1,1"),
        (*_FINE, "--config={place}/config.json", "--num_train_steps=1", "--num_train_epochs=1"),
        ("--task=colour", "--data_dir={place}/classes", "--output_dir={place}/run", "--config={place}/config.json"),
        ("--task=sst2", "--data_dir={place}/none", "--output_dir={place}/run", "--config={place}/config.json"),
    ],
    "albert_tf.compress": [
        (),
        ("--model={place}/empty", "--output_dir={place}/small"),
        ("--model={place}/empty", "--output_dir={place}/small", "--text={place}/corpus.txt"),
        ("--model={place}/empty", "--output_dir={place}/small", "--task=classification"),
    ],
    "albert_tf.run_ensemble": [(), ("--task=classification", "--data_dir={place}/classes", "--models={place}/empty",
                                    "--output_dir={place}/all")],
    "albert_tf.score_squad": [(), ("{place}/none.json",)],
    "albert_tf.convert_checkpoint": [
        (),
        ("--input={place}/empty", "--output={place}/x", "--to=keras"),
        ("--input={place}/broken.keras", "--output={place}/x.keras", "--to=keras"),
        ("--input={place}/broken.keras", "--output={place}/x", "--to=colour"),
    ],
    "albert_tf.run_evaluation": [
        (),
        ("--model={place}/empty", "--train_data={place}/empty", "--eval_data={place}/empty"),
    ],
    "albert_tf.analysis": [(), ("--config=albert_bass",)],
    "serving.export": [
        (),
        _EXPORT,
        (*_EXPORT, "--compute=int4"),
        (*_EXPORT, "--other_cpu"),
        (*_EXPORT, "--max_seq_length=3"),
        (*_EXPORT, "--warm_up_lengths=a"),
        (*_EXPORT, "--calibration_text={place}/empty.txt"),
        ("--model={place}/none", "--output_dir={place}/servable"),
        ("--model={place}/empty", "--output_dir={place}/servable"),
    ],
    "serving.model_server": [()],
    "serving.client": [(), ("predict",)],
    "serving.score": [(), ("--input={place}/none.txt", "--output_dir={place}/scored", "--target=localhost:1")],
}  # fmt: skip


def _encoder(**fields: Any) -> Any:
    return take("AlbertEncoder")(take("AlbertConfig").from_dict(SIZES | fields))


def _called(features: dict[str, Any], head: str = "", options: dict[str, Any] | None = None, **fields: Any) -> Any:
    model = _encoder(**fields)
    return (take(head)(model) if head else model)(features, **(options or {}))


_RELATIVE = {"position_type": "relative"}
_EQUILIBRIUM = {"equilibrium_solver": "anderson"}
_SEQUENCES = {"sequence_ids": BATCH["input_mask"]}
MODELS: dict[str, Callable[[], Any]] = {
    "unknown walk": lambda: take("AlbertEncoder")(take("AlbertConfig").from_dict(SIZES), walk="back"),
    "walk to no equilibrium": lambda: take("AlbertEncoder")(take("AlbertConfig").from_dict(SIZES), walk="equilibrium"),
    "unknown feature": lambda: _called(BATCH | {"colour": BATCH["input_ids"]}),
    "no ids": lambda: _called({"input_mask": BATCH["input_mask"]}),
    "ids out of range": lambda: _called({"input_ids": BATCH["input_ids"] + 100}),
    "too long": lambda: _called({"input_ids": np.ones((1, 20), "int32")}),
    "packed window": lambda: _called(BATCH | _SEQUENCES, attention_window=2),
    "packed relative": lambda: _called(BATCH | _SEQUENCES, **_RELATIVE),
    "memory without": lambda: _called(BATCH | {"memory": np.zeros((3, 3, 2, 8), "float32")}),
    "attentions of a window": lambda: _called(BATCH, options={"output_attentions": True}, attention_window=2),
    "states of an equilibrium": lambda: _called(BATCH, options={"output_hidden_states": True}, **_EQUILIBRIUM),
    "exits of an equilibrium": lambda: take("AlbertClassifier")(_encoder(**_EQUILIBRIUM), 2, early_exit=True),
    "exits of relative": lambda: take("AlbertClassifier")(_encoder(**_RELATIVE), 2, early_exit=True),
    "exits of halting": lambda: take("AlbertClassifier")(_encoder(halting="act"), 2, early_exit=True),
    "labels": lambda: take("AlbertClassifier")(_encoder(), 3, labels=["a"]),
    "pair task": lambda: take("AlbertPretrainer")(_encoder(), pair_task="both"),
    "xlnet of absolute": lambda: take("XlnetPretrainer")(_encoder()),
    "xlnet pair task": lambda: take("XlnetPretrainer")(_encoder(**_RELATIVE), pair_task="sop"),
    "pooling": lambda: take("AlbertSentenceEmbedder")(_encoder(), pooling="max"),
    "quantize": lambda: _encoder().quantize("float8"),
    "lora": lambda: _encoder().enable_lora(0),
    "lora layers": lambda: _encoder().enable_lora(2, ["colour"]),
    "optimizer": lambda: take("create_optimizer")("sgd", 0.1, 5, 1),
    "schedule": lambda: take("create_optimizer")("lamb", 0.1, 5, 9),
    "load": lambda: take("load")("albert-base-v2"),
    "words of a classifier": lambda: _called(BATCH | WORDS, "AlbertRegressor"),
}
