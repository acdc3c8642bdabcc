"""The signatures of a LiteRT version: those of a SavedModel of the same model, computed row by row."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.lite.model import LiteModel
from serving.lite.rows import Row, span_outputs
from serving.lite.texts import TextRows
from serving.wire.protos import Example
from tfrecords.answers.numbers import softmax, tag_of_cut
from tfrecords.answers.spans import IMPOSSIBLE, edges, null_scores
from tfrecords.answers.texts import prompt_of
from tfrecords.base.errors import UserError, refuse

Arrays = dict[str, np.ndarray]
# A type, and a shape with -1 for any size.
Spec = tuple[type, tuple[int, ...]]
# Is called after each row, and may raise.
Advance = Callable[[], Any]
PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))
TEXT, NUMBER, COUNT = (np.object_, (-1,)), (np.float32, (-1,)), (np.int32, (-1,))
_TEXTS, _FLOATS, _INTS = (np.object_, (-1, -1)), (np.float32, (-1, -1)), (np.int32, (-1, -1))
_COUNTS = dict.fromkeys(("text_tokens", "truncated_tokens", "unknown_tokens"), COUNT)
_ORDER = {"probabilities": (np.float32, (-1, 2))}
_BEST = {"ids": np.int32, "pieces": np.object_, "probabilities": np.float32, "texts": np.object_}
_TOKENIZED = {"input_ids": _INTS, "lengths": COUNT, "pieces": _TEXTS, "segment_ids": _INTS} | _COUNTS
# The score of what only fills up a row of answers.
_NO_ANSWER = -1e4


class Signature(NamedTuple):
    """A function of named arrays; `call` raises UserError for arrays that it cannot answer."""

    inputs: dict[str, Spec]
    outputs: dict[str, Spec]
    call: Callable[[Arrays, Advance], Arrays]
    method: str = PREDICT


class _Made(NamedTuple):
    """Rows of ids; `counts` of each row's tokens; `heads`: the columns of its words."""

    rows: list[Row]
    counts: Arrays
    heads: list[np.ndarray] = []


def signatures_of(model: LiteModel) -> dict[str, Signature]:
    """Returns the signatures that a version answers, by their names."""
    kind = model.description.answer.kind
    table = _KINDS.get(kind, _Heads)(model).table()
    return {name: one._replace(call=functools.partial(_call, one)) for name, one in table.items()}


def _call(signature: Signature, given: Arrays, advance: Advance) -> Arrays:
    if all(map(len, given.values())):
        return signature.call(given, advance)
    shapes = {
        name: (dtype, [0, *(max(size, 0) for size in shape[1:])]) for name, (dtype, shape) in signature.outputs.items()
    }
    return {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}


def _by_mask(default: Signature, dtype: type = np.int32) -> Signature:
    """Returns a signature of ids by their mask, as BERT's clients send them.

    A row ends at its mask's first 0, or before repetitions of its first id, with which servers pad.
    """

    def call(given: Arrays, advance: Advance) -> Arrays:
        ids, mask = given["input_ids"], given["input_mask"]
        refuse({
            "input_ids, input_mask and segment_ids differ in size":
                ids.shape != mask.shape or ids.shape != given["segment_ids"].shape,
            "input_ids or segment_ids holds a number above those of 32 bits":
                any(np.abs(given[name]).max(initial=0) >= 2**31 for name in ("input_ids", "segment_ids")),
        })  # fmt: skip
        columns = np.arange(ids.shape[-1])
        last = np.where(ids != ids[..., :1], columns, 0).max(axis=-1, keepdims=True)
        lengths = (np.logical_and.accumulate(mask > 0, axis=-1) & (columns <= last)).sum(axis=-1, dtype=np.int32)
        # A first token always counts, unless a choice is missing.
        inputs = {"input_ids": ids, "lengths": np.maximum(lengths, ids.ndim == 2), "segment_ids": given["segment_ids"]}
        return default.call({name: values.astype(np.int32) for name, values in inputs.items()}, advance)

    inputs = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), (dtype, default.inputs["input_ids"][1]))
    return Signature(inputs, default.outputs, call)


class _Heads:
    """Signatures of classes, several labels and numbers: one answer for each text or pair."""

    def __init__(self, model: LiteModel):
        self.model, self.about = model, model.description
        self.answer, self.limits, self.maker = self.about.answer, self.about.limits, model.rows
        self.labels = np.array([label.encode() for label in self.answer.labels], object)

    def table(self) -> dict[str, Signature]:
        ids = self.by_ids()
        if self.maker is None:
            return {"serving_default": ids, "masked": _by_mask(ids), "int64": _by_mask(ids, np.int64)}
        return self.of_texts() | {"ids": ids}

    def of_texts(self) -> dict[str, Signature]:
        pairs = self.answer.takes_pairs
        names = ("first", "second") if pairs else ("text",)
        table = {"serving_default": self.by_text(names), "tokenize": self.tokenized(names)}
        if pairs is None:
            table["pair"] = self.by_text(("first", "second"))
        if type(self).by_text is _Heads.by_text:
            table["with_options"] = self.with_options(names)
        return table | self.of_examples(names)

    def outputs(self) -> dict[str, Spec]:
        if self.answer.kind == "numbers":
            return {name: NUMBER for name in self.about.outputs}
        wide = (-1, len(self.labels))
        spec = {"label": TEXT, "classes": (np.object_, wide), "logits": (np.float32, wide)}
        several = {"labels": (np.object_, wide)} if self.answer.kind == "labels" else {}
        return spec | several | {"probabilities": (np.float32, wide)}

    def named(self, found: Sequence[Row]) -> Arrays:
        """Returns the outputs for what the file computed."""
        if self.answer.kind == "numbers":
            return {name: _stacked(found, name, ()) for name in self.about.outputs}
        logits = _stacked(found, "logits", (len(self.labels),))
        classes = np.tile(self.labels, (len(logits), 1))
        named = {"label": self.labels[logits.argmax(axis=1)], "classes": classes, "logits": logits}
        if self.answer.kind == "classes":
            return named | {"probabilities": softmax(logits)}
        shares = 1 / (1 + np.exp(-logits))
        return named | {"labels": np.where(shares > self.answer.threshold, classes, b""), "probabilities": shares}

    def by_text(self, names: Sequence[str]) -> Signature:
        def call(given: Arrays, advance: Advance) -> Arrays:
            made = self.made(_columns(given, names), advance)
            return self.named(self.run(made.rows, advance)) | (made.counts if counts else {})

        outputs = self.outputs()
        # Not beside a single output, which REST returns without a name.
        counts = _COUNTS if len(outputs) > 1 else {}
        return Signature(dict.fromkeys(names, TEXT), outputs | counts, call)

    def with_options(self, names: Sequence[str]) -> Signature:
        """Returns the signature that also takes where to cut long texts, and the prompt of each one."""
        prompts = np.array([[name.encode() for name in self.answer.prompts]], object)

        def call(given: Arrays, advance: Advance) -> Arrays:
            columns = _columns(given, names)
            if prompts.size:
                columns[0] = [self._prompt(*one) for one in zip(_strings(given["prompt_name"]), columns[0])]
            lefts = given["truncate_left"].tolist()
            each = zip(zip(*columns), lefts, strict=True)
            made = self._counted((self.maker.texts(*([one] for one in row), left=left) for row, left in each), advance)
            told = {"lengths": np.array([len(row["input_ids"]) for row in made.rows], np.int32)}
            told |= {"prompt_names": np.tile(prompts, (len(lefts), 1))} if prompts.size else {}
            return self.named(self.run(made.rows, advance)) | made.counts | told

        inputs = dict.fromkeys((*names, "prompt_name"), TEXT) if prompts.size else dict.fromkeys(names, TEXT)
        outputs = {"prompt_names": (np.object_, (-1, prompts.size))} if prompts.size else {}
        outputs |= self.outputs() | _COUNTS | {"lengths": COUNT}
        return Signature(inputs | {"truncate_left": (np.bool_, (-1,))}, outputs, call)

    def _prompt(self, name: str, text: str) -> str:
        return (prompt_of(self.model.task, name) if name else self.answer.default_prompt) + text

    def by_ids(self) -> Signature:
        has_segments = self.answer.takes_pairs is True
        inputs = {"input_ids": _INTS, "lengths": COUNT} | ({"segment_ids": _INTS} if has_segments else {})
        return Signature(inputs, self.outputs(), lambda given, advance: self.named(self.run(self.rows(given), advance)))

    def tokenized(self, names: Sequence[str]) -> Signature:
        def call(given: Arrays, advance: Advance) -> Arrays:
            made = self.made(_columns(given, names), advance)
            ids = _filled([row["input_ids"] for row in made.rows], self.maker.tokenizer.rules.pad_id)
            piece = self.maker.tokenizer.id_to_piece
            pieces = [np.array([piece(one).encode() for one in row["input_ids"].tolist()], object) for row in made.rows]
            segments = _filled([row["segment_ids"] for row in made.rows], 0)
            lengths = np.array([len(row["input_ids"]) for row in made.rows], np.int32)
            return made.counts | {"input_ids": ids, "lengths": lengths, "pieces": _filled(pieces, b"", object),
                                  "segment_ids": segments}  # fmt: skip

        return Signature(dict.fromkeys(names, TEXT), _TOKENIZED, call)

    def of_examples(self, names: Sequence[str]) -> dict[str, Signature]:
        """Returns the signatures of the Classify and Regress RPCs."""
        kind = self.answer.kind
        if kind not in ("classes", "labels", "numbers"):
            return {}
        name, method = ("regress", REGRESS) if kind == "numbers" else ("classify", CLASSIFY)
        taken = {"outputs": "value"} if kind == "numbers" else {"classes": "classes", "scores": "probabilities"}

        def call(given: Arrays, advance: Advance) -> Arrays:
            features = [Example.FromString(text).features.feature for text in given["inputs"].tolist()]
            columns = [[_feature(of_row, name) for of_row in features] for name in names]
            answers = self.named(self.run(self.made(columns, advance).rows, advance))
            return {alias: answers[output] for alias, output in taken.items()}

        specs = self.outputs()
        return {name: Signature({"inputs": TEXT}, {alias: specs[one] for alias, one in taken.items()}, call, method)}

    def made(self, columns: Sequence[Sequence[str]], advance: Advance) -> _Made:
        """Returns the rows of columns of texts."""
        return self._counted((self.maker.texts(*([text] for text in row)) for row in zip(*columns)), advance)

    def _counted(self, made: Iterable, advance: Advance) -> _Made:
        rows, heads, counts = list[Row](), list[np.ndarray](), list[tuple[int, int, int]]()
        for one in made:
            advance()
            rows += one.rows
            heads += one.heads
            unknown = sum(int((row["input_ids"] == self.maker.tokenizer.rules.unk_id).sum()) for row in one.rows)
            counts.append((one.truncation.tokens, one.truncation.truncated_tokens, unknown))
        return _Made(rows, dict(zip(_COUNTS, np.array(counts, np.int32).reshape(-1, 3).T)), heads)

    def rows(self, given: Arrays) -> list[Row]:
        """Returns rows of ids that a client sent."""
        ids, lengths = given["input_ids"], given["lengths"]
        refuse({
            "lengths must be from 1 to the columns of input_ids":
                not ((lengths >= 1) & (lengths <= ids.shape[1])).all(),
            f"input_ids is longer than the {self.limits.max_seq_length} tokens this model takes":
                lengths.max(initial=0) > self.limits.max_seq_length,
        })  # fmt: skip
        segments = given.get("segment_ids", np.zeros_like(ids))
        for name, values in (("input_ids", ids), ("segment_ids", segments)):
            if values.min(initial=0) < 0:
                raise UserError(f"{name} holds a negative number")
        if segments.any() and "segment_ids" not in self.about.inputs:
            raise UserError("segment_ids must be 0: the model was exported for single texts")
        if self.maker is not None:
            self.maker.tokenizer.check_ids(ids)
        return [
            {"input_ids": ids[row, :size], "segment_ids": segments[row, :size], "lengths": lengths[row]}
            for row, size in enumerate(lengths.tolist())
        ]

    def run(self, rows: Sequence[Row], advance: Advance) -> list[Row]:
        return self.model.run(rows, advance=advance)


class _Vectors(_Heads):
    """Signatures of embedders and encoders."""

    def outputs(self) -> dict[str, Spec]:
        sizes = {name: self._width(name) for name in ("embedding", "pooled_output") if name in self.about.outputs}
        return {name: (np.float32, (-1, size)) for name, size in sizes.items()}

    def named(self, found: Sequence[Row]) -> Arrays:
        return {name: _stacked(found, name, (self._width(name),)) for name in self.outputs()}

    def _width(self, name: str) -> int:
        return self.about.outputs[name].shape[-1]

    def made(self, columns: Sequence[Sequence[str]], advance: Advance) -> _Made:
        return super().made([[self.answer.default_prompt + text for text in texts] for texts in columns], advance)


class _Words(_Vectors):
    """Signatures of pre-trained models: vectors, and words for masks."""

    def table(self) -> dict[str, Signature]:
        has_texts = self.maker is not None
        ids = {"input_ids": _INTS, "lengths": COUNT}
        names = ("ids", "pieces", "probabilities", "texts") if has_texts else ("ids", "probabilities")
        outputs = {name: (_BEST[name], (-1, -1, -1)) for name in names}
        if has_texts:
            fill = Signature({"text": TEXT}, outputs | _COUNTS, self._fill_text)
        else:
            fill = Signature(ids | {"masked_lm_positions": _INTS}, outputs, self._fill_positions)
        table = super().table() | {"fill_mask": fill}
        if "order_logits" in self.about.outputs:
            inputs = dict.fromkeys(("first", "second"), TEXT) if has_texts else ids | {"segment_ids": _INTS}
            table["sentence_order"] = Signature(inputs, _ORDER, self._order)
        return table

    def _order(self, given: Arrays, advance: Advance) -> Arrays:
        by_ids = "input_ids" in given
        rows = self.rows(given) if by_ids else _Heads.made(self, _columns(given, ("first", "second")), advance).rows
        return {"probabilities": softmax(_stacked(self.run(rows, advance), "order_logits", (2,)))}

    def _best(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = softmax(logits)[:, : self.maker and self.maker.tokenizer.vocab_size]
        ids = np.argsort(-shares, axis=-1, kind="stable")[:, : self.limits.top_k]
        return ids.astype(np.int32), np.take_along_axis(shares, ids, -1).astype(np.float32)

    def _fill_positions(self, given: Arrays, advance: Advance) -> Arrays:
        rows = self.rows(given)
        for row, positions in zip(rows, given["masked_lm_positions"]):
            row["positions"] = np.clip(positions, 0, len(row["input_ids"]) - 1)
        return _filled_best([self._best(one["logits"]) for one in self.run(rows, advance)])

    def _masked(self, text: str) -> TextRows:
        try:
            return self.maker.masked([text])
        except UserError:
            # It has no mask, or none that is not cut off.
            return self.maker.texts([text])

    def _fill_text(self, given: Arrays, advance: Advance) -> Arrays:
        made = self._counted(map(self._masked, _strings(given["text"])), advance)
        found = zip(made.rows, self.run(made.rows, advance))
        best = [self._best(one["logits"][: len(row.get("positions", ()))]) for row, one in found]

        def written(of: Callable[[int], str]) -> np.ndarray:
            rows = [_shaped([of(one).encode() for one in ids.ravel().tolist()], ids.shape) for ids, _ in best]
            return _filled(rows, b"", object)

        texts = written(self._text_of)
        return made.counts | _filled_best(best) | {"pieces": written(self.maker.tokenizer.id_to_piece), "texts": texts}

    def _text_of(self, number: int) -> str:
        piece, kind = self.maker.tokenizer.id_to_piece(number), self.maker.tokenizer.rules.kind
        if kind == "bpe":
            from tokenizers.decoders import ByteLevel

            return ByteLevel().decode([piece])
        return re.sub(r"\A ", "", piece.replace("▁", " ")) if kind == "sentencepiece" else piece


class _Tags(_Heads):
    """Signatures of token classifiers: labels of the words of `str.split`."""

    def outputs(self) -> dict[str, Spec]:
        wide = (np.float32, (-1, -1, len(self.labels)))
        return {"labels": _TEXTS, "logits": wide, "probabilities": wide}

    def named(self, found: Sequence[Row]) -> Arrays:
        return self._tagged([one["logits"] for one in found])

    def _tagged(self, logits: Sequence[np.ndarray], widths: Sequence[int] = ()) -> Arrays:
        widest = max(widths, default=0)
        labels = [self.labels[one.argmax(axis=-1)] for one in logits]
        cut = (tag_of_cut([label.decode() for label in self.labels.tolist()]) or "").encode()
        for number, width in enumerate(widths):
            labels[number] = np.concatenate([labels[number], np.array([cut] * (width - len(labels[number])), object)])
        return {
            "labels": _filled(labels, b"", object, widest),
            "logits": _filled(logits, 0.0, np.float32, widest, (len(self.labels),)),
            "probabilities": _filled([softmax(one) for one in logits], 0.0, np.float32, widest, (len(self.labels),)),
        }

    def made(self, columns: Sequence[Sequence[str]], advance: Advance) -> _Made:
        return self._counted((self.maker.words([text.split()]) for text in columns[0]), advance)

    def by_text(self, names: Sequence[str]) -> Signature:
        def call(given: Arrays, advance: Advance) -> Arrays:
            texts = _strings(given["text"])
            made = self.made([texts], advance)
            places = [list(re.finditer(r"\S+", text)) for text in texts]
            found = [one["logits"][heads] for one, heads in zip(self.run(made.rows, advance), made.heads)]
            return self._tagged(found, [len(one) for one in places]) | made.counts | {
                "words": _filled([np.array([word[0].encode() for word in one], object) for one in places], b"", object),
                "starts": _filled([np.array([word.start() for word in one], np.int32) for one in places], 0),
                "ends": _filled([np.array([word.end() for word in one], np.int32) for one in places], 0),
            }  # fmt: skip

        places = {"words": _TEXTS, "starts": _INTS, "ends": _INTS}
        return Signature({"text": TEXT}, self.outputs() | places | _COUNTS, call)


class _Choices(_Heads):
    """Signatures of multiple choice: a row for each choice."""

    def of_texts(self) -> dict[str, Signature]:
        texts = {"context": TEXT, "question": TEXT, "choices": (np.object_, (-1, self.limits.num_choices))}
        default = Signature(texts, self.outputs() | {"answer": TEXT} | _COUNTS, self._choose)
        return {"serving_default": default, "tokenize": self.tokenized(("text",))}

    def outputs(self) -> dict[str, Spec]:
        wide = (np.float32, (-1, self.limits.num_choices))
        return {"choice": COUNT, "logits": wide, "probabilities": wide}

    def by_ids(self) -> Signature:
        count = self.limits.num_choices
        ids = (np.int32, (-1, count, -1))
        inputs = {"input_ids": ids, "lengths": (np.int32, (-1, count)), "segment_ids": ids}

        def call(given: Arrays, advance: Advance) -> Arrays:
            present = given["lengths"] != 0
            flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in given.items()}
            # A missing choice has a row, too.
            flat["lengths"] = np.where(flat["lengths"] == 0, 1, flat["lengths"])
            return self._chosen(self.run(self.rows(flat), advance), present)

        return Signature(inputs, self.outputs(), call)

    def _choose(self, given: Arrays, advance: Advance) -> Arrays:
        contexts, questions = _strings(given["context"]), _strings(given["question"])
        choices = [_strings(row) for row in given["choices"]]
        filled = [
            (context, question.replace("_", choice) if "_" in question else f"{question} {choice}")
            for context, question, of_question in zip(contexts, questions, choices)
            for choice in of_question
        ]
        made = self._counted((self.maker.choices([context], [choice]) for context, choice in filled), advance)
        present = given["choices"] != b""
        answers = self._chosen(self.run(made.rows, advance), present)
        counts = {name: (of.reshape(present.shape) * present).sum(axis=1, dtype=np.int32)
                  for name, of in made.counts.items()}  # fmt: skip
        best = np.array([row[number] for row, number in zip(given["choices"], answers["choice"])], object)
        return answers | counts | {"answer": best}

    def _chosen(self, found: Sequence[Row], present: np.ndarray) -> Arrays:
        logits = np.where(present, _stacked(found, "logits", ()).reshape(present.shape), np.float32(_NO_ANSWER))
        shares = softmax(logits) * present
        return {"choice": logits.argmax(axis=1).astype(np.int32), "logits": logits, "probabilities": shares}


class _Spans(_Heads):
    """Signatures of models that find answers in texts."""

    def of_texts(self) -> dict[str, Signature]:
        best = {"answers": _TEXTS, "ends": _INTS, "probabilities": _FLOATS, "scores": _FLOATS, "starts": _INTS}
        best = {name: (dtype, (-1, self.limits.top_k)) for name, (dtype, _) in best.items()}
        one = {"answer": TEXT, "end": COUNT, "no_answer_score": NUMBER, "score": NUMBER, "start": COUNT}
        asked = {"question": TEXT, "context": TEXT}
        default = Signature(asked, best | one | _COUNTS, self._answer)
        return {"serving_default": default, "tokenize": self.tokenized(("text",))}

    def outputs(self) -> dict[str, Spec]:
        count = self.answer.start_top * self.answer.end_top
        types = {"starts": np.int32, "ends": np.int32, "scores": np.float32}
        spans = {name: (dtype, (-1, count)) for name, dtype in types.items()}
        scores = {"start_log_probs": _FLOATS} | ({} if self.answer.joint else {"end_log_probs": _FLOATS})
        return scores | spans | {"num_spans": COUNT, "no_answer_score": NUMBER}

    def rows(self, given: Arrays) -> list[Row]:
        rows = super().rows(given)
        for row in rows:
            # Anywhere in the second text.
            row["may_start"] = row["segment_ids"] == 1
            row["may_start"][0] = False
            row["allowed"] = row["may_start"].copy()
            row["allowed"][0] = True
        return rows

    def by_ids(self) -> Signature:
        count = self.answer.start_top * self.answer.end_top

        def call(given: Arrays, advance: Advance) -> Arrays:
            rows = self.rows(given)
            found = [one | span_outputs(self.answer, row, one) for row, one in zip(rows, self.run(rows, advance))]
            best = [_legal(one["spans"]) for one in found]
            starts, ends, scores = zip(*best)
            nulls = [self._no_answer([one], float(max(of, default=_NO_ANSWER))) for one, of in zip(found, scores)]
            log_probs = [name for name in self.outputs() if name.endswith("_log_probs")]
            return {name: _filled([one[name] for one in found], IMPOSSIBLE, np.float32) for name in log_probs} | {
                "starts": _filled(starts, 0, np.int32, count),
                "ends": _filled(ends, 0, np.int32, count),
                "scores": _filled(scores, _NO_ANSWER, np.float32, count),
                "num_spans": np.array([len(of) for of in scores], np.int32),
                "no_answer_score": np.array(nulls, np.float32),
            }

        return Signature({"input_ids": _INTS, "lengths": COUNT, "segment_ids": _INTS}, self.outputs(), call)

    def _no_answer(self, windows: Sequence[dict[str, Any]], best: float) -> float:
        scores = [null_scores(one, 0) for one in windows]
        return float(min(score[0] for score, _ in scores)) - (best if scores[0][1] else 0.0)

    def _answer(self, given: Arrays, advance: Advance) -> Arrays:
        found, counts, top_k = list[Arrays](), list[tuple[int, int, int]](), self.limits.top_k
        for question, context in zip(*_columns(given, ("question", "context"))):
            advance()
            windows = self.maker.windows([(question, context)])
            outputs = [span_outputs(self.answer, *one) for one in zip(windows.rows, self.run(windows.rows, advance))]
            found.append(self._best_spans(context, windows, outputs, top_k))
            ids = self.maker.tokenizer.encode_batch([question, context])[0]
            unknown = int((ids == self.maker.tokenizer.rules.unk_id).sum())
            counts.append((windows.truncation.tokens, windows.truncation.truncated_tokens, unknown))
        counted = dict(zip(_COUNTS, np.array(counts, np.int32).reshape(-1, 3).T))
        answers = {name: np.array([one[name] for one in found]) for name in found[0]}
        return answers | counted | {"answer": np.array([one["answer"] for one in found], object)}

    def _best_spans(self, context: str, windows: Any, outputs: Sequence[dict[str, Any]], top_k: int) -> Arrays:
        spans = []
        for number, output in enumerate(outputs):
            shift = windows.first_token[number] - windows.first_column[number]
            first, last, scores = _legal(output["spans"])
            spans += zip((first + shift).tolist(), (last + shift).tolist(), scores.tolist())
        spans = sorted(spans, key=lambda one: -one[2])[:top_k]
        offsets, best = windows.offsets[0], []
        for first, last, score in spans:
            begin, end = int(offsets[first, 0]), int(offsets[last, 1])
            text = context[begin:end].lstrip(edges())
            begin, text = end - len(text), text.rstrip(edges())
            if text:
                best.append((text.encode(), begin, begin + len(text), score))
        best += [(b"", 0, 0, _NO_ANSWER)] * (top_k - len(best))
        texts, starts, ends, scores = zip(*best)
        present = np.array([bool(text) for text in texts])
        null = self._no_answer(outputs, scores[0])
        threshold = self.answer.null_threshold
        answered = present[0] and (threshold is None or null <= threshold)
        several = {
            "answers": np.array(texts, object), "starts": np.array(starts, np.int32), "ends": np.array(ends, np.int32),
            "scores": np.array(scores, np.float32),
            "probabilities": (softmax(np.array(scores, np.float32)) * present).astype(np.float32),
        }  # fmt: skip
        return several | {
            "answer": texts[0] if answered else b"",
            "start": np.int32(starts[0] if answered else 0),
            "end": np.int32(ends[0] if answered else 0),
            "score": np.float32(scores[0]),
            "no_answer_score": np.float32(null),
        }


_KINDS = {"vectors": _Vectors, "words": _Words, "tags": _Tags, "choices": _Choices, "spans": _Spans}


def _legal(spans: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    legal = spans["score"] > IMPOSSIBLE / 2
    return spans["start_index"][legal], spans["end_index"][legal], spans["score"][legal]


def _strings(values: np.ndarray) -> list[str]:
    return [value.decode(errors="replace") for value in values.tolist()]


def _columns(given: Arrays, names: Sequence[str]) -> list[list[str]]:
    return [_strings(given[name]) for name in names]


def _feature(features: Any, name: str) -> str:
    if name not in features or not features[name].bytes_list.value:
        raise UserError(f"an example has no text '{name}'")
    return features[name].bytes_list.value[0].decode(errors="replace")


def _stacked(found: Sequence[Row], name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.array([one[name] for one in found], np.float32).reshape(-1, *shape)


def _shaped(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _filled_best(best: Sequence[tuple[np.ndarray, np.ndarray]]) -> Arrays:
    ids, shares = zip(*best)
    return {"ids": _filled(ids, 0), "probabilities": _filled(shares, 0.0, np.float32)}


def _filled(
    rows: Sequence[np.ndarray], fill: Any, dtype: type = np.int32, width: int = 0, shape: tuple[int, ...] = ()
) -> np.ndarray:
    """Returns an array of rows of different lengths, filled up."""
    shape = shape or rows[0].shape[1:]
    filled = np.full((len(rows), max([width, *map(len, rows)]), *shape), fill, dtype)
    for target, row in zip(filled, rows):
        target[: len(row)] = row
    return filled
