"""Other patterns than GPT-2's: ids and offsets are those of the `tokenizers` library, and the graph's are the same."""

# ruff: noqa: RUF001
import itertools
import json
import random

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tfrecords.tokenizers.test_byte_bpe import (
    HARD_TEXTS,
    assert_as_the_library,
    assert_twins,
    changed,
    hand_made,
    texts,
    theirs_of,
)
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.byte_bpe_file import GPT2_PATTERN
from tfrecords.tokenizers.byte_words_in_graph import MarkWords
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.re2_patterns import re2_pattern
from tfrecords.tokenizers.training import BPE_SPECIAL

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
pre_tokenizers = tokenizers.pre_tokenizers

_END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _END
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "GPT-4": (GPT4,),
    "possessive": (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}" + _END.replace("]+[", "]++["),),
    "by case": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'ll)?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}{{1,3}}"
        + _END.replace(r"[\r\n]*", r"[\r\n/]*"),
    ),
    "one after the other": (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", r"[!-/:-@][A-Za-z]+|" + GPT4),
    "digits": (r"\p{N}", GPT2_PATTERN),
}
MORE = [
    "I'LL we'd THEY'RE 'ſ it's\r\n\r\n  if x:\n\t\treturn 12345678 / 3.1415926\r\n \r\n.",
    " \n a\n\n  b \t c!?\n\n\nd ...\r\n//x camelCaseWord HTTPServer Ǆǅǆ ʰx e\u0301E\u0301 ٣٤٥٦ ½²",
    "\u3000\u3000日本語のテキスト。中文，標點 カタカナ１２３４",
]


def trained(patterns, lines):
    """A tokenizer.json that the library trained with these patterns."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, level])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=BPE_SPECIAL, initial_alphabet=level.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return tokenizer.to_str().encode()


@pytest.fixture(scope="module")
def lines(corpus_file):
    return [*corpus_file.read_text(encoding="utf-8").split("\n")[:2000], *MORE, *HARD_TEXTS[:-2]]


@pytest.fixture(scope="module", params=PATTERNS)
def file(request, lines):
    return trained(PATTERNS[request.param], lines)


@pytest.fixture(scope="module")
def gpt4(lines):
    return trained(PATTERNS["GPT-4"], lines)


@pytest.fixture(scope="module")
def both(file):
    return ByteBPETokenizer(file), theirs_of(file)


class TestIds:
    @pytest.mark.few(1)
    def test_mixed_text(self, both, lines):
        ours, theirs = both
        batch = lines[::4] + MORE + HARD_TEXTS
        assert_as_the_library(ours, theirs, batch)
        assert_twins(ours, batch)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.one_of(texts, st.text(" \n\r\t'sSlLaA1/.,\u3000中\u0301", max_size=30)), max_size=4))
    def test_any_text(self, both, batch):
        # What capital and small letters are RE2 says by tables of its own, of another Unicode.
        batch = ["".join(letter for letter in text if ord(letter) < 0x3100) for text in batch]
        assert_as_the_library(*both, batch)
        assert_twins(both[0], batch)

    def test_bytes_that_are_no_utf8(self, both):
        rng = random.Random(1)
        data = [bytes(rng.choices([0xFF, 0xFE, 0xFD, 0xC3, 0xE4, 32, 10, 97, 49], k=12)) for _ in range(200)]
        assert_twins(both[0], data)

    @pytest.mark.few(2)
    def test_tokens_that_are_cut_out(self, both, file):
        reading, theirs = both[0].reading_special_strings(), theirs_of(file, without_added=False)
        batch = ["a <mask>, 12<s>3456  </s>b", " \n<pad>\n x", "<mask>", *HARD_TEXTS]
        ids = [found.ids for found in theirs.encode_batch(batch, add_special_tokens=False)]
        assert [reading.encode(text) for text in batch] == ids
        assert_twins(reading, batch, offsets=False)


class TestFiles:
    def test_saved_and_published_it_is_the_same(self, both, tmp_path):
        ours, _ = both
        ours.save(tmp_path / "own")
        (tmp_path / "tokenizer.json").write_bytes(ours.published_files()["tokenizer.json"])
        for copy in (load_tokenizer(tmp_path / "own"), load_tokenizer(tmp_path / "tokenizer.json")):
            assert (copy.sha256, copy.encode(MORE[1])) == (ours.sha256, ours.encode(MORE[1]))

    def test_another_pattern_is_another_tokenizer(self, both, file):
        values = json.loads(file)
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        gpt2 = ByteBPETokenizer(changed(file, pre_tokenizer=level))
        assert gpt2.rules.patterns == (GPT2_PATTERN,) and gpt2.sha256 != both[0].sha256
        assert values["pre_tokenizer"]["pretokenizers"][-1]["use_regex"] is False

    def test_digits_and_strings_are_patterns(self, gpt4, lines):
        for step in (pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(" a", "isolated")):
            theirs = theirs_of(gpt4)
            theirs.pre_tokenizer = pre_tokenizers.Sequence([step, pre_tokenizers.ByteLevel(add_prefix_space=False)])
            ours = ByteBPETokenizer(theirs.to_str().encode())
            assert_as_the_library(ours, theirs, lines[::50] + MORE)
            assert_twins(ours, lines[::50] + MORE)

    def test_a_text_may_be_one_word(self, gpt4, lines):
        theirs = theirs_of(gpt4)
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        ours = ByteBPETokenizer(theirs.to_str().encode())
        assert_as_the_library(ours, theirs, lines[::50] + MORE)
        assert_twins(ours, lines[::50] + MORE)


def test_no_unknown_token_is_asked_of_a_file(gpt4, lines):
    """Llama's and its like have none, since no text is unknown."""
    values = json.loads(gpt4)
    del values["model"]["vocab"]["<unk>"]
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != "<unk>"]
    tokenizer = ByteBPETokenizer(json.dumps(values).encode())
    assert tokenizer.unk_id == tokenizer.pad_id == 1
    assert_as_the_library(tokenizer, theirs_of(gpt4), lines[::40] + MORE)
    assert_twins(tokenizer, lines[::40] + MORE)


@pytest.mark.parametrize(("merges", "is_known"), [(["a b", "b c", "ab c"], True), (["b c", "a b", "ab c"], False)])
def test_merges_are_ignored_where_that_makes_no_difference(merges, is_known):
    """With ignore_merges a word that is a piece is that piece, also where no merges lead to it."""
    values = json.loads(hand_made(merges))
    values["model"]["ignore_merges"] = True
    file = json.dumps(values).encode()
    if is_known:
        assert_as_the_library(ByteBPETokenizer(file), theirs_of(file), ["abc ab c", "abcabc", "bc"])
    else:
        with pytest.raises(UserError, match="pieces that no merge makes, such as 'abc'"):
            ByteBPETokenizer(file)


class TestRefused:
    @pytest.mark.parametrize(
        ("pattern", "message"),
        [
            (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))|\s+", r"it has '\(\?='"),
            (r"(?<=a)b|\s+", r"it has '\(\?<'"),
            (r"\w+|\s+", r"it has '\\w'"),
            (r"^a|\s+", r"it has '\^'"),
            (r"[a-z&&[^b]]+|\s+", "between brackets"),
            (r"[\S]+|\s+", "between brackets"),
            (r"\s+(?!\S)|\p{L}+", "looks ahead elsewhere"),
            # What it would do was tried.
            (r"\s{2,}|\p{L}+|\s+(?!\S)|\s+", "would become"),
            (r"[^\s]++a|\s+", "would become"),
            (r"a{2,1}|\s+", "RE2 does not know it"),
        ],
    )
    def test_at_export_and_not_at_load(self, gpt4, pattern, message):
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        sequence = {"type": "Sequence", "pretokenizers": [step, level]}
        tokenizer = ByteBPETokenizer(changed(gpt4, pre_tokenizer=sequence))
        with pytest.raises(UserError, match=r"has no form in a graph: .*--inputs=ids") as raised:
            tokenizer.in_graph()
        assert pattern in str(raised.value)
        assert raised.match(message)
        if "{2,1}" not in pattern:
            assert tokenizer.encode("a b")

    @pytest.mark.parametrize(
        ("step", "message"),
        [
            ({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": False}, "'Removed'"),
            ({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": True}, "'invert': True"),
            ({"type": "Punctuation", "behavior": "Isolated"}, "known are Split"),
        ],
    )
    def test_steps_that_are_not_known(self, gpt4, step, message):
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        sequence = {"type": "Sequence", "pretokenizers": [step, level]}
        with pytest.raises(UserError, match=message):
            ByteBPETokenizer(changed(gpt4, pre_tokenizer=sequence))


def test_a_pattern_that_the_library_does_not_know_is_one_clear_line(gpt4):
    step = {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = ByteBPETokenizer(changed(gpt4, pre_tokenizer={"type": "Sequence", "pretokenizers": [step, level]}))
    with pytest.raises(UserError, match=r"cannot be parted by one of \['\(a'\]"):
        tokenizer.encode("a")


def test_gpt2_leaves_nothing_between_words():
    """Its marks stand behind words alone, which is right only where words follow each other."""
    kinds = " \n\u3000a1'.\u0301中s"
    texts = tf.constant(["".join(letters) for letters in itertools.product(kinds, repeat=3)])
    left = tf.strings.regex_replace(texts, re2_pattern(GPT2_PATTERN).words, "")
    assert set(left.numpy().tolist()) == {b""}
    assert not any(word.startswith(b"\xff") for word in MarkWords([GPT2_PATTERN])(texts).numpy())
