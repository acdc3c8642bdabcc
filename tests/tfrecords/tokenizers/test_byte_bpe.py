"""Byte-level BPE: Python's ids and offsets are those of the `tokenizers` library, and the graph's are Python's."""

# ruff: noqa: RUF001
import inspect
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.byte_bpe_file import byte_characters
from tfrecords.tokenizers.loading import load_tokenizer, read_tokenizer, tokenizer_in
from tfrecords.tokenizers.training import BPE_SPECIAL, train_bpe
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, class_table, ranges

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors

HARD_TEXTS = [
    *("", " ", "   ", "\n", "\0", "a\0b", "a  b   c \n\n d\t", "\u3000\u3000 a", "x\u00a0 y \u2028 z\x85"),
    "In 1999, he sold 1,234,567 shares; I'll don't WE'VE they're 's 'S it's'd",
    "Café naïve — “quoted” ``tex'' ﬁne Å ½ ™ cafe\u0301",
    "日本語と中文 mixed，标点。  双空格",
    "emoji 👩‍👩‍👧👍🏽 \u200b zero \ufeff \ufffd",
    "한국어 ᄒ" + "ᅡᆫ",
    "def f(x):\n    return {'a': x ** 2}  # ok\n\n\n",
    "<s> </s> <mask> <pad> a<mask>b",
    "\U0001c489 \u1c89 \U00016d40 \U00010d40",
    "ab" * 40_000,
    "x" * 300,
]
texts = st.text(
    st.one_of(
        st.sampled_from(" \n\t'\u3000\u00a0abstreldv19,.é中👍\u0301\0ÿþý"), st.characters(codec="utf-8")
    ),
    max_size=40,
)  # fmt: skip
no_utf8 = st.sampled_from([b"\xff", b"\xfe", b"\xfd", b"\xc0\x80", b"\xed\xa0\x80", b"\xe4\xb8", b"the", b" ", b"\xc3"])
raw_bytes = st.lists(no_utf8).map(b"".join) | st.binary(max_size=20)


def theirs_of(vocabulary: bytes, without_added: bool = True):
    """The library's own tokenizer; `without_added`: no string of a special token is cut out."""
    values = json.loads(vocabulary)
    if without_added:
        values["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(values))


def rows_of(tokenizer, batch):
    """Ids and offsets of each text."""
    ids, splits, offsets = tokenizer.encode_with_offsets(batch)
    again, same_splits = tokenizer.encode_batch(batch)
    assert (ids.dtype, splits.dtype, offsets.dtype) == (np.int32, np.int64, np.int32)
    np.testing.assert_array_equal(ids, again)
    np.testing.assert_array_equal(splits, same_splits)
    return [
        (ids[start:end].tolist(), [tuple(offset) for offset in offsets[start:end].tolist()])
        for start, end in itertools.pairwise(splits)
    ]


def assert_as_the_library(tokenizer, theirs, batch):
    encodings = theirs.encode_batch(list(batch), add_special_tokens=False)
    for text, ours, encoding in zip(batch, rows_of(tokenizer, batch), encodings):
        assert ours == (encoding.ids, encoding.offsets), text[:60]


def assert_twins(tokenizer, batch, offsets=True):
    if not hasattr(tokenizer, "_twin_for_tests"):
        twin, signature = tokenizer.in_graph(), [tf.TensorSpec([None], tf.string)]
        functions = [tf.function(function, input_signature=signature) for function in (twin, twin.with_offsets)]
        tokenizer._twin_for_tests = twin, functions
    alone, with_offsets = tokenizer._twin_for_tests[1]
    strings = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
    rows = rows_of(tokenizer, strings)
    found = alone(tf.constant(batch, tf.string))
    assert found.dtype == tf.int32
    assert found.to_list() == [ids for ids, _ in rows]
    if offsets:
        ids, starts, ends = (part.to_list() for part in with_offsets(tf.constant(batch, tf.string)))
        pairs = [list(zip(*both)) for both in zip(starts, ends)]
        assert (ids, pairs) == ([ids for ids, _ in rows], [offsets for _, offsets in rows])


def changed(vocabulary: bytes, **values) -> bytes:
    return json.dumps(json.loads(vocabulary) | values).encode()


@pytest.fixture(scope="module")
def vocabulary(corpus_file) -> bytes:
    return train_bpe([*corpus_file.read_text(encoding="utf-8").split("\n"), "中文 標點，中文 é é 👍👍 👍"], 1500)


@pytest.fixture(scope="module")
def bpe(vocabulary):
    return ByteBPETokenizer(vocabulary)


@pytest.fixture(scope="module")
def theirs(vocabulary):
    return theirs_of(vocabulary)


class TestIds:
    def test_hard_texts(self, bpe, theirs):
        assert_as_the_library(bpe, theirs, HARD_TEXTS)
        assert_twins(bpe, HARD_TEXTS)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(texts, max_size=4))
    def test_any_text(self, bpe, theirs, batch):
        assert_as_the_library(bpe, theirs, batch)
        assert_twins(bpe, batch)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(raw_bytes, max_size=4))
    def test_bytes_that_are_not_utf8_are_read_as_python_does(self, bpe, batch):
        assert_twins(bpe, batch)

    def test_half_a_pair_is_what_python_puts_for_a_wrong_byte(self, bpe):
        assert bpe.encode("a\ud800b") == bpe.encode("a\ufffdb")

    def test_prose_and_code(self, bpe, theirs, corpus_file):
        lines = corpus_file.read_text(encoding="utf-8").split("\n")[:3000]
        code = [inspect.getsource(module) for module in (json, random)]
        assert_as_the_library(bpe, theirs, lines + code)
        assert_twins(bpe, lines + code)

    def test_the_kinds_of_all_characters_are_the_librarys(self):
        rng = random.Random(3)
        edges = {
            edge + off
            for kind in (LETTER, NUMBER, SPACE)
            for pair in ranges(kind)
            for edge in pair
            for off in (-1, 0, 1)
        }
        codes = {code for code in edges | {rng.randrange(0x110000) for _ in range(2000)} if 0 <= code < 0x110000}
        codes = sorted(code for code in codes if not 0xD800 <= code < 0xE000)
        for kind, pattern in ((LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (SPACE, r"\s")):
            found = pre_tokenizers.Split(tokenizers.Regex(pattern), "removed").pre_tokenize_str(
                "".join(map(chr, codes))
            )
            others = {ord(character) for part, _ in found for character in part}
            assert others == {code for code in codes if class_table()[code] != kind}

    def test_what_is_known_of_the_published_vocabulary(self, tmp_path):
        """ "Hello world!" and " Hello world" have these ids in roberta-base; gaps stand for the rest of its pieces."""
        pieces = {"Hello": 31414, "Ġworld": 232, "ĠHello": 20920, "!": 328, "Ġ": 1437}
        merges = ["H e", "He l", "Hel l", "Hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Hello"]
        numbers = itertools.count(40_000)
        ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264} | pieces
        for piece in [*byte_characters(), *(merge.replace(" ", "") for merge in merges)]:
            ids.setdefault(piece, next(numbers))
        (tmp_path / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
        (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
        tokenizer = load_tokenizer(tmp_path)
        assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.vocab_size) == (0, 2, 50264, 50265)
        assert tokenizer.encode("Hello world!") == [31414, 232, 328]
        assert tokenizer.encode(" Hello world") == [20920, 232]
        assert_twins(tokenizer, ["Hello world!", " Hello world", "  Hello\n"])
        assert_as_the_library(tokenizer, theirs_of(tokenizer.vocabulary), ["Hello world!", " Hello world", "hell"])
        framed = theirs_of(tokenizer.vocabulary, without_added=False)
        assert framed.encode("Hello world!").ids == [0, 31414, 232, 328, 2]
        assert framed.encode("Hello", "!").ids == [0, 31414, 2, 2, 328, 2]
        assert (tokenizer.separators_between, tokenizer.second_segment_id) == (2, 0)


def hand_made(merges, extra=(), **values):
    """A tokenizer.json of these merges."""
    pieces = [*BPE_SPECIAL, *byte_characters(), *(merge.replace(" ", "") for merge in merges), *extra]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    model = tokenizers.models.BPE(ids, [tuple(merge.split(" ")) for merge in merges])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = level
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    tokenizer.add_special_tokens(BPE_SPECIAL)
    return changed(tokenizer.to_str().encode(), **values)


class TestOddVocabularies:
    """SentencePiece merges any two parts that make a piece, the library those that a merge names."""

    @pytest.mark.parametrize(
        "merges",
        [
            # "abc" by two ways, of which the second alone is gone.
            ["a b", "b c", "ab c", "a bc"],
            ["b c", "a b", "ab c", "a bc"],
            # "abc" cannot come about: b and c are one first.
            ["b c", "a b", "ab c"],
            # A merge before those of its parts.
            ["ab c", "a b", "c a", "abc a"],
            # The same merge twice.
            ["a b", "b c", "a b", "c a"],
        ],
    )
    @pytest.mark.few(2)
    def test_equal_and_impossible_merges(self, merges):
        file = hand_made(merges)
        tokenizer, theirs = ByteBPETokenizer(file), theirs_of(file)
        batch = ["".join(letters) for size in range(1, 7) for letters in itertools.product("abc", repeat=size)]
        assert_as_the_library(tokenizer, theirs, batch)
        assert_twins(tokenizer, batch)

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_any_merges(self, data):
        known, merges = list("abc"), []
        for _ in range(data.draw(st.integers(1, 12))):
            left, right = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
            merges.append(f"{left} {right}")
            known.append(left + right)
        file = hand_made(data.draw(st.permutations(merges)))
        tokenizer, theirs = ByteBPETokenizer(file), theirs_of(file)
        batch = data.draw(st.lists(st.text("abc", max_size=12), max_size=20))
        assert_as_the_library(tokenizer, theirs, batch)
        assert_twins(tokenizer, batch, offsets=False)

    def test_no_text_gives_a_special_token(self):
        tokenizer = ByteBPETokenizer(hand_made(["h i", "d e", "hi de"]), roles={"mask": "hide"})
        assert tokenizer.mask_id == tokenizer.pieces.index("hide")
        assert [tokenizer.pieces[i] for i in tokenizer.encode("hide")] == ["hi", "de"]
        assert_twins(tokenizer, ["hide", "a hide", "hides"])

    def test_pieces_that_no_text_gives_are_special(self):
        tokenizer = ByteBPETokenizer(hand_made(["b c", "a b", "ab c"], extra=["madeupword0000", "lost"]))
        lost = {tokenizer.pieces[i] for i in tokenizer.special_ids}
        assert lost == {*BPE_SPECIAL, "abc", "madeupword0000", "lost"}


class TestAddedTokens:
    def test_special_strings_are_text_unless_asked_for(self, vocabulary, bpe):
        text = "a <mask>, <s>b"
        assert bpe.mask_id not in bpe.encode(text)
        reading, theirs = bpe.reading_special_strings(), theirs_of(vocabulary, without_added=False)
        for one in HARD_TEXTS + [text, "a \n <mask><mask> x", "<mask>", " <mask>"]:
            assert reading.encode(one) == theirs.encode(one, add_special_tokens=False).ids
        assert_as_the_library(reading, theirs, [text, "a  <mask><mask> x", "<mask>"])
        assert_twins(reading, [*HARD_TEXTS, text, "a \n <mask><mask> x"], offsets=False)
        assert reading.sha256 != bpe.sha256
        with pytest.raises(UserError, match="white space around them"):
            reading.in_graph().with_offsets(tf.constant(["a"]))

    def test_runs_of_blanks_as_tokens_and_composition_as_modernbert_has_them(self, vocabulary):
        values = json.loads(vocabulary)
        size = len(values["model"]["vocab"])
        runs = [{"id": size + n, "content": " " * (n + 2), "special": False, "normalized": True} for n in range(5)]
        runs.append({"id": size + 5, "content": "a  b", "special": False, "normalized": True})
        flags = {"single_word": False, "lstrip": False, "rstrip": False}
        file = changed(
            vocabulary, added_tokens=[run | flags for run in runs], normalizer={"type": "NFC"}, post_processor=None
        )
        tokenizer, theirs = ByteBPETokenizer(file), theirs_of(file, without_added=False)
        assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
        parted = ["a\u030a\u0301 n\u0303o ᄒ" + "ᅡᆫ" + " \u0301"]
        composed = [text for text in HARD_TEXTS if "\u0301" not in text and "ᅡ" not in text]
        assert_as_the_library(tokenizer, theirs, [*composed, "if x:\n" + " " * 17 + "a  b   c", "a  b" * 3])
        batch = HARD_TEXTS + parted
        ids = [ids for ids, _ in rows_of(tokenizer, batch)]
        assert ids == [found.ids for found in theirs.encode_batch(batch, add_special_tokens=False)]
        assert_twins(tokenizer, [*batch, "if x:\n" + " " * 17 + "a  b   c", "a  b" * 3])
        # The library has of characters that are composed the first alone.
        assert rows_of(tokenizer, ["cafe\u0301"])[0][1][-1] == (3, 5)

    def test_a_blank_is_put_behind_tokens_too(self, vocabulary):
        values = json.loads(vocabulary)
        file = changed(vocabulary, pre_tokenizer=values["pre_tokenizer"] | {"add_prefix_space": True})
        reading, theirs = ByteBPETokenizer(file).reading_special_strings(), theirs_of(file, without_added=False)
        batch = [
            "<s>a<mask>b</s></s>c",
            "a <pad> b<pad>",
            "<s>",
            "<s> ",
            "",
            " ",
            "a<s>\u3000b",
            "\n<s>\n",
            *HARD_TEXTS,
        ]
        ids = [found.ids for found in theirs.encode_batch(batch, add_special_tokens=False)]
        assert [reading.encode(text) for text in batch] == ids
        assert_twins(reading, batch, offsets=False)
        bare = ByteBPETokenizer(
            changed(file, added_tokens=[{**token, "lstrip": False} for token in values["added_tokens"]])
        )
        with pytest.raises(UserError, match="blank is put behind tokens"):
            bare.reading_special_strings().in_graph().with_offsets(tf.constant(["a"]))

    def test_a_word_of_its_own_is_refused(self, vocabulary):
        flags = {"single_word": True, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        token = {"id": 5000, "content": "whole"} | flags
        with pytest.raises(UserError, match="single_word"):
            ByteBPETokenizer(changed(vocabulary, added_tokens=[token]))


class TestRulesOfTheFile:
    @pytest.mark.parametrize("prefix", [True, False])
    @pytest.mark.parametrize("trim", [True, False])
    @pytest.mark.few(1)
    def test_blank_before_texts_and_white_space_in_offsets(self, vocabulary, prefix, trim):
        values = json.loads(vocabulary)
        level, post = values["pre_tokenizer"], values["post_processor"]
        file = changed(
            vocabulary,
            pre_tokenizer=level | {"add_prefix_space": prefix},
            post_processor=post | {"add_prefix_space": prefix, "trim_offsets": trim},
        )
        tokenizer = ByteBPETokenizer(file)
        assert_as_the_library(tokenizer, theirs_of(file), HARD_TEXTS)
        assert_twins(tokenizer, HARD_TEXTS)

    def test_the_pattern_may_stand_in_the_file(self, vocabulary, bpe):
        from tfrecords.tokenizers.byte_bpe_file import GPT2_PATTERN

        split = pre_tokenizers.Split(tokenizers.Regex(GPT2_PATTERN), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        theirs = tokenizers.Tokenizer.from_str(vocabulary.decode())
        theirs.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        tokenizer = ByteBPETokenizer(theirs.to_str().encode())
        assert tokenizer.encode(HARD_TEXTS[9]) == bpe.encode(HARD_TEXTS[9])
        assert tokenizer.sha256 == bpe.sha256

    def test_a_template_says_how_pairs_are_framed(self, vocabulary):
        for pair, expected in (("<s> $A </s> $B:1 </s>:1", (1, 1)), ("<s> $A </s> </s> $B </s>", (2, 0))):
            theirs = tokenizers.Tokenizer.from_str(vocabulary.decode())
            theirs.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, [("<s>", 0), ("</s>", 2)])
            tokenizer = ByteBPETokenizer(theirs.to_str().encode())
            assert (tokenizer.separators_between, tokenizer.second_segment_id) == expected
            written = theirs_of(tokenizer.published_files()["tokenizer.json"], without_added=False)
            for texts in (("a b",), ("a b", "c")):
                assert written.encode(*texts).ids == theirs.encode(*texts).ids
                assert written.encode(*texts).type_ids == theirs.encode(*texts).type_ids

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"normalizer": {"type": "Lowercase"}}, "normalizes text by Lowercase"),
            ({"pre_tokenizer": {"type": "Metaspace"}}, "known is the BPE of bytes"),
            ({"model": {"dropout": 0.1}}, "dropout=0.1"),
            ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
            ({"model": {"ignore_merges": True, "vocab": {"lost": 999}}}, "pieces that no merge makes, such as 'lost'"),
            ({"model": {"merges": [["a", "q"]]}}, "needs 'aq'"),
            ({"model": {"vocab": None}}, "copy it again"),
            ({"post_processor": {"type": "TemplateProcessing", "single": [], "pair": []}}, "does not frame a text"),
        ],
    )
    def test_what_has_no_twin_or_is_damaged_is_refused(self, vocabulary, change, message):
        values = json.loads(vocabulary)
        for key, value in change.items():
            if key == "model" and isinstance(value.get("vocab"), dict):
                value = value | {"vocab": values["model"]["vocab"] | {"lost": 99_999}}
            values[key] = values[key] | value if key == "model" else value
        with pytest.raises(UserError, match=message):
            ByteBPETokenizer(json.dumps(values).encode())

    def test_a_vocabulary_without_a_byte_or_a_mask_is_refused(self, vocabulary):
        for piece, message in (("A", "no piece for the byte 0x41"), ("<mask>", "no mask token such as")):
            values = json.loads(vocabulary)
            values["added_tokens"] = values["added_tokens"][:4]
            values["model"]["vocab"][f"not {piece}"] = values["model"]["vocab"].pop(piece)
            values["model"]["merges"] = []
            with pytest.raises(UserError, match=message):
                ByteBPETokenizer(json.dumps(values).encode())


class TestFiles:
    def test_saved_pickled_and_published_it_is_the_same(self, bpe, vocabulary, tmp_path):
        bpe.save(tmp_path / "own")
        for name, data in bpe.published_files().items():
            (tmp_path / name).write_bytes(data)
        (tmp_path / "two").mkdir()
        for name in ("vocab.json", "merges.txt"):
            (tmp_path / "two" / name).write_bytes(bpe.published_files()[name])
        copies = [load_tokenizer(tmp_path / "own"), pickle.loads(pickle.dumps(bpe)), tokenizer_in(tmp_path)]
        copies += [load_tokenizer(tmp_path / "tokenizer.json"), read_tokenizer(tmp_path / "two")]
        copies += [load_tokenizer(tmp_path / "vocab.json"), load_tokenizer(tmp_path / "two")]
        for copy in copies:
            assert (copy.sha256, copy.encode("a b,")) == (bpe.sha256, bpe.encode("a b,"))
        reading = bpe.reading_special_strings()
        reading.save(tmp_path / "own")
        assert load_tokenizer(tmp_path / "own").sha256 == pickle.loads(pickle.dumps(reading)).sha256 == reading.sha256
        library = tokenizers.Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
        assert library.encode("a b,", add_special_tokens=False).ids == bpe.encode("a b,")
        with pytest.raises(UserError, match="leave out --lower_case"):
            tokenizer_in(tmp_path / "two", lower_case=True)
        (tmp_path / "two" / "merges.txt").unlink()
        with pytest.raises(UserError, match="without its merges"):
            tokenizer_in(tmp_path / "two")

    def test_special_tokens_of_other_names_are_named_beside_the_vocabulary(self, bpe, tmp_path):
        values = json.loads(bpe.published_files()["vocab.json"])
        values["<|hide|>"] = values.pop("<mask>")
        (tmp_path / "vocab.json").write_text(json.dumps(values))
        (tmp_path / "merges.txt").write_bytes(bpe.published_files()["merges.txt"])
        with pytest.raises(
            UserError, match=r"no mask token such as <mask> or \[MASK\]; name it in a special_tokens_map"
        ):
            tokenizer_in(tmp_path)
        (tmp_path / "special_tokens_map.json").write_text('{"mask_token": {"content": "<|hide|>"}}')
        tokenizer = tokenizer_in(tmp_path)
        tokenizer.save(tmp_path / "own")
        assert load_tokenizer(tmp_path / "own").mask_id == tokenizer.mask_id == bpe.mask_id

    def test_graph_is_saved_with_its_vocabulary_and_needs_no_table(self, bpe, tmp_path):
        module = tf.Module()
        module.tokenizer = bpe.in_graph()
        signature = [tf.TensorSpec([None], tf.string)]
        module.ids = tf.function(lambda texts: module.tokenizer(texts).to_tensor(), input_signature=signature)
        tf.saved_model.save(module, tmp_path)
        ids = tf.saved_model.load(str(tmp_path)).ids(tf.constant(["It's  1999 中"])).numpy()[0].tolist()
        assert ids == bpe.encode("It's  1999 中")
        graph = module.ids.get_concrete_function().graph.as_graph_def()
        ops = {node.op for node in [*graph.node, *(node for f in graph.library.function for node in f.node_def)]}
        custom = {op for op in ops if "piece" in op.lower() or "Table" in op or "TFText" in op or "UTF8" in op}
        assert custom == {"SentencepieceTokenizeOp"} and not any("While" in op or "Variable" in op for op in ops)

    def test_decoding_gives_the_text_back(self, bpe):
        for text in HARD_TEXTS:
            assert bpe.decode(bpe.encode(text)) == text


class TestTraining:
    def test_the_same_lines_give_the_same_file(self, corpus_file):
        lines = corpus_file.read_text(encoding="utf-8").split("\n")[:1500]
        file = train_bpe(lines, 700)
        assert file == train_bpe(lines, 700)
        tokenizer = ByteBPETokenizer(file)
        assert tokenizer.pieces[:5] == BPE_SPECIAL and tokenizer.vocab_size == 700
        assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (
            0,
            2,
            1,
            3,
            4,
        )

    def test_sizes_that_do_not_fit(self):
        with pytest.raises(UserError, match="raise it to 261"):
            train_bpe(["a"], 100)
        with pytest.raises(UserError, match=r"set it to \d+ or less"):
            train_bpe(["the thesis, the theme"] * 2, 1000)
        with pytest.raises(UserError, match="no text to train on"):
            train_bpe([], 1000)
        assert ByteBPETokenizer(train_bpe(["the thesis"] * 2, 1000, hard_vocab_limit=False)).vocab_size > 261


def test_words_of_whole_word_masking_begin_with_white_space(bpe):
    starts = dict(zip(bpe.pieces, bpe.word_starts))
    assert all(starts[piece] for piece in ("Ġthe", "Ġ", "Ċ", "<mask>"))
    assert not any(starts[piece] for piece in ("the", ",", "t", "Ã"))
