"""The names that the cases take from the library, and where each version keeps them."""

import importlib
from typing import Any

# The first place that exists counts: add one in front when a name moves, and keep the former for older versions. A name
# that is not here is one of the package albert_tf.
PLACES = {
    "create_optimizer": ("albert_tf.optimizers:create_optimizer",),
    **{
        f"{verb}_{form}": (f"albert_tf.checkpoints:{verb}_{form}",)
        for verb in ("load", "save")
        for form in ("official", "huggingface", "keras_hub")
    },
    "UserError": ("tfrecords.base.errors:UserError",),
    "load_tokenizer": ("tfrecords.tokenizers.loading:load_tokenizer",),
    "read_examples": ("tfrecords.reader:read_examples",),
    "read_permutations": (
        "tfrecords.reading.permutations:read_permutations",
        "tfrecords.permutation_reader:read_permutations",
    ),
    "ExportSettings": ("serving.export:ExportSettings",),
    "export": ("serving.export:export",),
    "named_configurations": ("albert_tf.config.published:NAMED", "albert_tf.published:NAMED"),
}
# Every command, by the module that `python -m` takes.
COMMANDS = (
    "tfrecords.train_tokenizer", "tfrecords.create_pretraining_data", "tfrecords.inspect_examples",
    "albert_tf.run_pretraining", "albert_tf.run_finetuning", "albert_tf.compress", "albert_tf.run_ensemble",
    "albert_tf.score_squad", "albert_tf.convert_checkpoint", "albert_tf.analysis", "albert_tf.run_evaluation",
    "albert_tf.analysis.layer_distances", "serving.export",
    "serving.model_server", "serving.client", "serving.gateway", "serving.score", "serving.benchmark",
)  # fmt: skip


def take(name: str) -> Any:
    """Returns what a version calls `name`.

    Raises:
        LookupError: none of its places exists.
    """
    places = PLACES.get(name, (f"albert_tf:{name}",))
    for place in places:
        module, _, attribute = place.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"'{name}' is at none of {', '.join(places)}; add its place to scripts/version_cases")
