"""Writes and checks the files of a LiteRT version."""

import datetime
import hashlib
from pathlib import Path

import numpy as np

from albert_tf.loaded import Loaded
from serving.check import TOLERANCES, compare
from serving.exportable import Exportable, ExportOptions, ExportSignature
from serving.exportable.samples import Arrays, sample_inputs
from serving.lite import description
from serving.lite.description import Description, Limits, Trial
from serving.lite.interpreters import Interpreters
from serving.lite.model import LiteModel
from serving.litert.converter import convert, described, input_specs
from serving.litert.tokenizer_file import write_tokenizer
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import Framer

# By which part of an output's largest number other CPUs may differ: ten times what an emulated ARM64 did.
_TRIAL_TOLERANCES = {"float32": 1e-4, "int8": 0.05}
_ROWS, _LONGEST = 4, 64


def write_version(
    folder: Path, loaded: Loaded, exportable: Exportable, options: ExportOptions, compute: str
) -> dict[str, float]:
    """Writes a version's files into a new folder; returns the largest differences from the Keras model by output.

    Raises UserError if answers differ by more than rounding explains, or the tokenizer is unsupported.
    """
    size = 4 * loaded.model.count_params()
    if compute == "float32" and size >= description.MOST_BYTES:
        raise UserError(
            f"the model has {size / 1e9:.1f} GB in float32, more than a LiteRT file holds; use --compute=int8"
        )
    folder.mkdir()
    content, outputs = convert(exportable, compute)
    (folder / description.MODEL_FILE).write_bytes(content)
    answer, rules = exportable.lite_description(), None
    if options.tokenizer is not None:
        rules = write_tokenizer(folder, options.tokenizer, with_offsets=answer.kind == "spans")
    rows, interpreters = _sample_rows(exportable), Interpreters(content)
    answers = _run(interpreters, rows)
    expected = [exportable.lite_expected(loaded.model, *asked) for asked in zip(rows, answers)]
    tolerance = max(TOLERANCES[compute], TOLERANCES[loaded.model.compute_dtype])
    differences = compare(_stacked(expected), _stacked(answers), tolerance)
    texts = _trial_texts(exportable, options) if rules else [()] * len(rows)
    if rules:
        rows = _trial_rows(exportable, options, texts)
        answers = _run(interpreters, rows)
    description.write(
        folder,
        Description(
            model=type(loaded.model).__name__,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            compute=compute,
            tolerance=_TRIAL_TOLERANCES[compute],
            check=differences,
            parameters=loaded.model.count_params(),
            files={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())},
            inputs={name: described(spec) for name, spec in input_specs(exportable).items()},
            outputs=outputs,
            answer=answer,
            limits=Limits(
                options.max_seq_length, options.doc_stride, options.max_query_length, options.top_k, options.num_choices
            ),
            tokenizer=rules,
            trials=tuple(_trial(*one) for one in zip(texts, rows, answers)),
        ),
    )
    LiteModel(folder)  # asks the trials
    return differences


def _run(interpreters: Interpreters, rows: list[Arrays]) -> list[Arrays]:
    # Interpreters know no axis of rows.
    answers = interpreters.run([{name: values[0] for name, values in row.items()} for row in rows])
    return [{name: values[None] for name, values in one.items()} for one in answers]


def _trial_texts(exportable: Exportable, options: ExportOptions) -> list[tuple[str, ...]]:
    singles = exportable.lite_texts(options.tokenizer)
    seconds = singles[1:] + singles[:1]
    alone = exportable.lite_description().takes_pairs is False
    return [(one,) if alone else (one, other) for one, other in zip(singles, seconds)]


def _trial_rows(exportable: Exportable, options: ExportOptions, texts: list[tuple[str, ...]]) -> list[Arrays]:
    framer, names = Framer(options.tokenizer, options.max_seq_length), input_specs(exportable)
    framed = [exportable.lite_row(framer, *one) for one in texts]
    return [{name: row[name] for name in names} for row in framed]


def _trial(texts: tuple[str, ...], row: Arrays, answers: Arrays) -> Trial:
    count = description.TRIAL_NUMBERS
    return Trial(
        texts,
        {name: tuple(values.astype(int).ravel().tolist()) for name, values in row.items()},
        {name: tuple(values.ravel()[:count].astype(float).tolist()) for name, values in answers.items()},
    )


def _sample_rows(exportable: Exportable) -> list[Arrays]:
    signature = ExportSignature(exportable.lite_answer, input_specs(exportable))
    lengths = np.linspace(min(_LONGEST, exportable.options.max_seq_length), 3, _ROWS)
    return [sample_inputs(exportable, signature, int(length)) for length in lengths]


def _stacked(answers: list[Arrays]) -> Arrays:
    """Returns one row of numbers for each answer, filled up with zeros."""
    stacked = {}
    for name in answers[0]:
        flat = [one[name].ravel() for one in answers]
        stacked[name] = np.zeros((len(flat), max(map(len, flat))), np.float32)
        for row, values in zip(stacked[name], flat):
            row[: len(values)] = values
    return stacked
