"""Every head on a small encoder: its answers, and what training steps do to it, for each optimizer."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .configurations import encoder_of
from .filled import BATCH, LABELS, LENGTH, WORDS, fill, numbers, prefixed, random_like, short, weights_of
from .groups import Case, Folders
from .places import take

TAGS = np.arange(3 * LENGTH).reshape(3, LENGTH) % 3
SPANS = {
    "start_positions": np.array([[5], [0], [1]], "int32"),
    "end_positions": np.array([[7], [0], [1]], "int32"),
    "is_impossible": np.array([[0], [1], [0]], "int32"),
}
CHOICES = {name: np.stack([value, np.roll(value, 1, axis=0)], axis=1) for name, value in BATCH.items()}
OPTIMIZERS = {
    "lamb": {},
    "adamw": {},
    "muon": {},
    "adamw official norm": {"gradient_norm": "official"},
    "lamb other constants": {"beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-5, "weight_decay": 0.1},
    "adamw not clipped": {"global_clipnorm": None},
    "adamw accumulated": {"gradient_accumulation_steps": 2},
}


def heads() -> dict[str, tuple[Callable, dict[str, Any], Any]]:
    """Returns for each head how it is made of an encoder, a batch, and labels where its loss is the task's."""
    from_encoder = {name: take(f"Albert{name}") for name in ("Classifier", "Regressor", "TokenClassifier")}
    classifier, regressor, tagger = from_encoder.values()
    spans = take("AlbertSpanPredictor")
    return {
        "encoder": (lambda encoder: encoder, BATCH, None),
        "classifier": (lambda e: classifier(e, 3, labels=["bad", "good", "odd"]), BATCH, LABELS),
        "exiting classifier": (lambda e: classifier(e, 3, early_exit=True), BATCH, LABELS),
        "regressor": (regressor, BATCH, LABELS.astype("float32")),
        "exiting regressor": (lambda e: regressor(e, early_exit=True), BATCH, LABELS.astype("float32")),
        "token classifier": (lambda e: tagger(e, 3), BATCH, TAGS),
        "exiting token classifier": (lambda e: tagger(e, 3, early_exit=True), BATCH, TAGS),
        "spans": (lambda e: spans(e, start_top=3, end_top=2), BATCH | SPANS, None),
        "joint spans": (lambda e: spans(e, joint=True, start_top=3, end_top=2), BATCH | SPANS, None),
        "multiple choice": (take("AlbertMultipleChoice"), CHOICES, LABELS),
        "embedder": (take("AlbertSentenceEmbedder"), BATCH, None),
        "cls embedder": (lambda e: take("AlbertSentenceEmbedder")(e, pooling="cls", normalize=False), BATCH, None),
        "pretrainer": (take("AlbertPretrainer"), BATCH | WORDS, None),
        "nsp pretrainer": (lambda e: take("AlbertPretrainer")(e, pair_task="nsp"), BATCH | WORDS, None),
        "pretrainer of words": (lambda e: take("AlbertPretrainer")(e, pair_task=None), BATCH | WORDS, None),
    }  # fmt: skip


# What has no loss.
UNTRAINED = ("encoder", "embedder", "cls embedder")


def make(head: str, configuration: str = "albert", dtype: str = "float32", optimizer: str = "") -> Any:
    """Returns a head's model on the encoder of a configuration, filled; compiled where an optimizer is named."""
    # Layers that draw random numbers of their own take their seeds from here.
    _seed()
    encoder = encoder_of(configuration, dtype=dtype)
    build, _, _ = heads()[head]
    model = build(encoder) if dtype == "float32" else _of_dtype(build, encoder)
    fill(model)
    if optimizer:
        options = {"learning_rate": 0.01, "num_train_steps": 5, "num_warmup_steps": 1, "poly_power": 1.5}
        options |= OPTIMIZERS[optimizer]
        loss = {"loss": _loss(head)} if heads()[head][2] is not None else {}
        model.compile(take("create_optimizer")(optimizer.split()[0], **options), run_eagerly=True, **loss)
    return model


def _of_dtype(build: Callable, encoder: Any) -> Any:
    """A head of the encoder's own policy, as a model's files would say it."""
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(encoder.dtype_policy)
    try:
        return build(encoder)
    finally:
        keras.config.set_dtype_policy(before)


def _seed() -> None:
    import keras

    keras.utils.set_random_seed(11)


def _loss(head: str) -> Any:
    import keras

    return "mse" if "regressor" in head else keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def cases(folders: Folders) -> Iterator[Case]:
    """Returns the cases of heads."""
    for head in heads():
        yield f"answers, {head}", answers, head
        yield f"answers in mixed bfloat16, {head}", functools.partial(answers, head, dtype="mixed_bfloat16")
        if head not in UNTRAINED:
            yield f"three steps, {head}", steps, head
    for optimizer in OPTIMIZERS:
        yield f"five steps, {optimizer}", steps, "pretrainer", optimizer, 5
    yield "five steps of muon, six at once", steps, "classifier", "muon", 5, "six at once"
    for optimizer in OPTIMIZERS:
        yield f"updates by given gradients, {optimizer}", updates, optimizer
    yield "words that hardly count", few_words
    yield "accumulated parts of uneven length", uneven_parts
    yield "early answers", early_answers
    yield "as Keras offers it: lora", adapters
    yield "published configurations", published


def answers(head: str, dtype: str = "float32") -> dict[str, np.ndarray]:
    """What a head answers; outside training labels change nothing but the joint head's ends."""
    model, batch = make(head, dtype=dtype), heads()[head][1]
    return numbers(model(batch), "answer") | numbers(model(batch, training=True), "training")


def steps(head: str, optimizer: str = "adamw", count: int = 3, configuration: str = "albert") -> dict[str, np.ndarray]:
    """Losses and metrics of a few steps, and all weights and the optimizer's state behind them."""
    model, (_, batch, labels) = make(head, configuration, optimizer=optimizer), heads()[head]
    found = {}
    for step in range(count):
        found |= numbers(model.train_on_batch(batch, labels, return_dict=True), f"step {step}")
    found |= numbers(model.test_on_batch(batch, labels, return_dict=True), "evaluation")
    return found | state_of(model)


def updates(optimizer: str) -> dict[str, np.ndarray]:
    """What an optimizer makes of gradients of every size, of none, and of some that are not finite."""
    import keras
    from keras import ops

    shapes = {"dense/kernel": (4, 3), "dense/bias": (3,), "LayerNorm/gamma": (3,), "word_embeddings": (6, 4)}
    shapes |= {"depth_signal/table": (2, 4), "depth_lora/up": (2, 3, 4), "pooler/kernel": (4, 4), "head/kernel": (4, 2)}
    variables = []
    for path, shape in shapes.items():
        scope, _, name = path.rpartition("/")
        with keras.name_scope(scope or "embeddings"):
            variables.append(keras.Variable(random_like(path, shape), name=name))
    options = {"learning_rate": 0.01, "num_train_steps": 9, "num_warmup_steps": 3} | OPTIMIZERS[optimizer]
    made = take("create_optimizer")(optimizer.split()[0], **options)
    found = {}
    for step, scale in enumerate((1e-6, 1e-3, 1.0, 0.0, float("nan"), 0.1, 0.1)):
        gradients = [random_like(f"{path} {step}", shape, 1.0) * np.float32(scale) for path, shape in shapes.items()]
        made.apply([ops.convert_to_tensor(gradient) for gradient in gradients], variables)
        found |= {f"step {step}/{path}": np.asarray(v.numpy()) for path, v in zip(shapes, variables)}
        found[f"step {step}/figures"] = str(made.figures())
    return found | {"configuration": str(sorted(made.get_config().items(), key=str))}


def few_words() -> dict[str, np.ndarray]:
    """The loss of words whose weights are as small as what is added to their sum."""
    model = make("pretrainer", optimizer="adamw")
    batch = BATCH | WORDS | {"masked_lm_weights": WORDS["masked_lm_weights"] * np.float32(3e-6)}
    return numbers(model.train_on_batch(batch, return_dict=True)) | state_of(model)


def state_of(model: Any) -> dict[str, np.ndarray]:
    """Returns a compiled model's weights and its optimizer's variables."""
    import keras

    found = prefixed("weights", weights_of(model))
    variables = {f"optimizer/{i} {short(v.path)}": v for i, v in enumerate(model.optimizer.variables)}
    return found | {key: np.asarray(keras.ops.convert_to_numpy(value)) for key, value in variables.items()}


def uneven_parts() -> dict[str, np.ndarray]:
    """Keras's accumulation over batches of which one has fewer words than the other."""
    model = make("pretrainer", optimizer="adamw accumulated")
    found = {}
    for step, rows in enumerate((slice(0, 2), slice(2, 3), slice(1, 3), slice(0, 1))):
        batch = {name: value[rows] for name, value in (BATCH | WORDS).items()}
        found |= numbers(model.train_on_batch(batch, return_dict=True), f"step {step}")
    return found | state_of(model)


def early_answers() -> dict[str, np.ndarray]:
    """What rows that may leave early answer, by every rule."""
    found = {}
    rules = {"exiting classifier": ("confidence", "patience", "movement")}
    rules |= {"exiting token classifier": ("confidence", "movement"), "exiting regressor": ("patience",)}
    for head, names in rules.items():
        model = make(head)
        for rule in names:
            for threshold in (0.2, 0.5, 2.0):
                outputs = model.answer_early(BATCH, threshold, rule)
                found |= numbers(outputs, f"{head}, {rule}, {threshold}")
    return found


def adapters() -> dict[str, np.ndarray]:
    """Adapters that are trained and merged."""
    import keras

    model = make("classifier")
    model.encoder.enable_lora(2)
    model.compile(keras.optimizers.SGD(0.1), _loss("classifier"), run_eagerly=True)
    losses = [float(model.train_on_batch(BATCH, LABELS)) for _ in range(3)]
    found = {"losses": np.array(losses)} | prefixed("adapted", weights_of(model))
    model.encoder.merge_lora()
    return found | weights_of(model) | numbers(model(BATCH), "answer")


def published() -> dict[str, str]:
    """The fields of every published configuration."""
    import json

    config = take("AlbertConfig")
    found = {name: json.dumps(config.named(name).to_dict(), indent=1) for name in take("named_configurations")}
    return found | {"default": json.dumps(config().to_dict(), indent=1)}
