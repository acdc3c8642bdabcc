"""How the files beside it were made: their heads, requests and settings; `tests/test_stored.py` reads all of it.

They hold what users have on their disks, and do not change. Commit feed0b7 wrote the models, the exports and the curves
of fine-tuning; the scripts that wrote them stand in commit 7779acce.
"""

from pathlib import Path

import keras
import numpy as np

WORDS = "the a of in who what where paris france capital is river runs film fine dull cat sat mat two thousand"
SIZES = dict(
    vocab_size=104, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=48, initializer_range=0.3,
)  # fmt: skip
TEXTS = ["paris is the capital of france", "the film is dull.", "a cat sat", "who sat in paris?"]
SECOND = ["the river runs in paris", "fine", "the cat sat on the mat, two thousand", "a cat sat in paris"]
REQUESTS = {
    "multiple choice": {"context": TEXTS, "question": SECOND, "choices": [["paris", "a cat", "", "the mat"]] * 4},
    "spans": {"question": TEXTS, "context": SECOND},
    "joint spans": {"question": TEXTS, "context": SECOND},
    "token classifier": {"text": TEXTS},
    "embedder": {"text": TEXTS},
    "pretrainer": {"text": ["paris is the [MASK] of france", "[MASK] cat sat", "a [MASK]", "the [MASK] runs"]},
}
TASKS = {
    "classifier": {"labels": ["bad", "good", "odd"], "inputs": ["text"]},
    "exiting classifier": {"labels": ["bad", "good", "odd"], "inputs": ["text"]},
    "regressor": {"labels": None, "inputs": ["text", "text_b"]},
}


HEADS = (
    "classifier", "exiting classifier", "regressor", "spans", "joint spans", "multiple choice", "token classifier",
    "embedder", "encoder", "pretrainer"
)  # fmt: skip


def features(lengths=(12, 7, 3), vocab_size: int = SIZES["vocab_size"]) -> dict[str, np.ndarray]:
    """Three rows of 12 tokens, of which 12, 7 and 3 are real."""
    length = lengths[0]
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype("int32")
    ids = np.random.default_rng(3).integers(5, vocab_size, mask.shape).astype("int32") * mask
    segments = (np.arange(length) > (length - 1) // 2).astype("int32") * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def inputs_of(head: str) -> dict[str, np.ndarray]:
    found = features()
    if head == "multiple choice":
        found = {name: np.stack([value] * 2, axis=1) for name, value in found.items()}
        found["input_ids"][:, 1] = np.roll(found["input_ids"][:, 1], 1, axis=1) * found["input_mask"][:, 1]
    if head == "pretrainer":
        found["masked_lm_positions"] = np.array([[1, 2], [3, 4], [1, 1]], "int32")
    return found


def arrays_of(outputs) -> dict[str, np.ndarray]:
    outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
    tensors = {name: value for name, value in outputs.items() if value is not None and not isinstance(value, list)}
    return {name: keras.ops.convert_to_numpy(value) for name, value in tensors.items()}


def answers_of(model, head: str) -> dict[str, np.ndarray]:
    return arrays_of(model(inputs_of(head), training=False))


def request_of(head: str) -> dict:
    if head == "regressor":
        return {"first": TEXTS, "second": SECOND}
    return REQUESTS.get(head, {"text": TEXTS})


def call_saved_model(folder: Path, **inputs) -> dict[str, np.ndarray]:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the ops of text inputs

    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy() for name, value in found.items()}


def build_arguments(folder: Path, output: Path, masking: str) -> list[str]:
    return [
        "tfrecords.create_pretraining_data", f"--input={folder}/corpus.txt", f"--tokenizer={folder}/vocab.txt",
        f"--output_dir={output}", f"--masking={masking}", "--max_seq_length=32", "--max_predictions_per_seq=5",
        "--held_out_fraction=0.1", "--seed=1", "--split_sentences",
    ]  # fmt: skip


def pretraining_settings(folder: Path, output: Path, masking: str, **changes):
    from albert_tf.training.pretraining import PretrainingSettings

    settings = dict(
        config=str(folder / "config.json"), train_data=str(folder / masking), eval_data=str(folder / masking),
        output_dir=str(output), learning_rate=0.01, train_batch_size=8, num_train_steps=8, num_warmup_steps=2,
        save_checkpoints_steps=4, log_steps=1, seed=3,
    )  # fmt: skip
    return PretrainingSettings(**settings | changes)


def finetuning_settings(folder: Path, output: Path, **changes):
    from albert_tf.tasks.settings import FinetuningSettings

    settings = dict(
        task="classification", data_dir=str(folder / "table"), output_dir=str(output),
        config=str(folder / "config.json"),
        tokenizer=str(folder / "vocab.txt"), learning_rate=0.005, train_batch_size=8, num_train_steps=12,
        num_warmup_steps=2, save_checkpoints_steps=4, seed=3, max_seq_length=24,
    )  # fmt: skip
    return FinetuningSettings(**settings | changes)


PRETRAININGS = {
    "dynamic": dict(masking="dynamic"),
    "static, in parts": dict(masking="static", gradient_accumulation_steps=2),
    "adamw": dict(masking="dynamic", optimizer="adamw"),
}
FINETUNINGS = {
    "plain": {},
    "in parts": dict(gradient_accumulation_steps=2),
    "one width": dict(length_buckets=False),
    "early exit": dict(early_exit=True),
}


def history(run: Path) -> list[dict]:
    """Every figure of a run that does not go by the machine."""
    import csv

    unsteady = ("seconds", "wait", "per_s", "per_second", "memory", "gib", "waited", "time", "hours", "mfu")
    with open(run / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: row[key] for key in row if not any(word in key for word in unsteady)} for row in rows]
