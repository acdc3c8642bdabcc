"""Other patterns than GPT-2's: ids and offsets are those of the `tokenizers` library, and the graph's are the same."""

# ruff: noqa: RUF001
import itertools
import json

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tfrecords.tokenizers.test_byte_bpe import hand_made
from tests.tfrecords.tokenizers.twins import (
    HARD_TEXTS,
    assert_as_the_library,
    assert_twins,
    changed,
    raw_bytes,
    texts,
    their_ids,
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
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
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
def lines(corpus_lines):
    return [*corpus_lines[:2000:4], *MORE, *HARD_TEXTS[:-2]]


@pytest.fixture(scope="module", params=PATTERNS)
def file(request, lines):
    return trained(PATTERNS[request.param], lines)


@pytest.fixture(scope="module")
def trained_gpt4(lines):
    return trained(PATTERNS["GPT-4"], lines)


@pytest.fixture(scope="module")
def gpt4(trained_gpt4):
    return ByteBPETokenizer(trained_gpt4)


@pytest.fixture(scope="module")
def both(file):
    return ByteBPETokenizer(file), theirs_of(file)


# Any text (an example costs two graphs' operations), and some of the corpus.
@settings(max_examples=15)
@given(st.lists(st.one_of(texts, st.text(" \n\r\t'sSlLaA1/.,\u3000中\u0301", max_size=30)), max_size=8))
@example(MORE + HARD_TEXTS)
def test_ids_and_offsets_are_those_of_the_library(both, batch):
    # What capital and small letters are RE2 says by tables of its own, of another Unicode.
    if len(batch) <= 8:
        batch = ["".join(letter for letter in text if ord(letter) < 0x3100) for text in batch]
    assert_as_the_library(*both, batch)


@settings(max_examples=15)
@given(st.lists(raw_bytes | st.lists(st.sampled_from([b"\xff", b" ", b"\n", b"a", b"1"])).map(b"".join), max_size=20))
def test_bytes_that_are_no_utf8(gpt4, batch):
    assert_twins(gpt4, batch)


@pytest.mark.few(2)
def test_tokens_that_are_cut_out_and_files(both, file, tmp_path):
    ours, _ = both
    reading, theirs = ours.reading_special_strings(), theirs_of(file, without_added=False)
    batch = ["a <mask>, 12<s>3456  </s>b", " \n<pad>\n x", "<mask>", *HARD_TEXTS]
    assert [reading.encode(text) for text in batch] == their_ids(theirs, batch)
    assert_twins(reading, batch, offsets=False)
    ours.save(tmp_path / "own")
    (tmp_path / "tokenizer.json").write_bytes(ours.published_files()["tokenizer.json"])
    for copy in (load_tokenizer(tmp_path / "own"), load_tokenizer(tmp_path / "tokenizer.json")):
        assert (copy.sha256, copy.encode(MORE[1])) == (ours.sha256, ours.encode(MORE[1]))
    # Another pattern is another tokenizer.
    gpt2 = ByteBPETokenizer(changed(file, pre_tokenizer=LEVEL | {"use_regex": True}))
    assert gpt2.rules.patterns == (GPT2_PATTERN,) and gpt2.sha256 != ours.sha256


@pytest.mark.parametrize(
    ("steps", "use_regex"),
    [
        ([pre_tokenizers.Digits(individual_digits=True)], True),
        ([pre_tokenizers.Split(" a", "isolated")], True),
        # A text is one word.
        ([], False),
    ],
    ids=["digits", "a string", "nothing"],
)
def test_digits_strings_and_nothing_are_patterns(trained_gpt4, lines, steps, use_regex):
    theirs = theirs_of(trained_gpt4)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*steps, level])
    assert_as_the_library(ByteBPETokenizer(theirs.to_str().encode()), theirs, lines[::20] + MORE)


def test_no_unknown_token_is_asked_of_a_file(trained_gpt4, lines):
    """Llama's and its like have none, since no text is unknown."""
    values = json.loads(trained_gpt4)
    del values["model"]["vocab"]["<unk>"]
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != "<unk>"]
    tokenizer = ByteBPETokenizer(json.dumps(values).encode())
    assert tokenizer.unk_id == tokenizer.pad_id == 1
    assert_as_the_library(tokenizer, theirs_of(trained_gpt4), lines[::20] + MORE)


@pytest.mark.parametrize(("merges", "is_known"), [(["a b", "b c", "ab c"], True), (["b c", "a b", "ab c"], False)])
def test_merges_are_ignored_where_that_makes_no_difference(merges, is_known):
    """With ignore_merges a word that is a piece is that piece, also where no merges lead to it."""
    values = json.loads(hand_made(merges))
    values["model"]["ignore_merges"] = True
    file = json.dumps(values).encode()
    if is_known:
        assert_as_the_library(ByteBPETokenizer(file), theirs_of(file), ["abc ab c", "abcabc", "bc"], twin=False)
    else:
        with pytest.raises(UserError, match="pieces that no merge makes, such as 'abc'"):
            ByteBPETokenizer(file)


def stepwise(file, **step):
    """The tokenizer of a file that parts text by this step, and no pattern of its own."""
    return ByteBPETokenizer(changed(file, pre_tokenizer={"type": "Sequence", "pretokenizers": [step, LEVEL]}))


def split(file, pattern, behavior="Isolated", invert=False):
    return stepwise(file, type="Split", pattern={"Regex": pattern}, behavior=behavior, invert=invert)


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
def test_patterns_that_a_graph_cannot_have_are_refused_at_export_and_not_at_load(trained_gpt4, pattern, message):
    tokenizer = split(trained_gpt4, pattern)
    with pytest.raises(UserError, match=r"has no form in a graph: .*--inputs=ids") as raised:
        tokenizer.in_graph()
    assert pattern in str(raised.value)
    assert raised.match(message)
    if "{2,1}" not in pattern:
        assert tokenizer.encode("a b")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: split(file, "a", behavior="Removed"), "behavior=Removed"),
        (lambda file: split(file, "a", invert=True), "invert=true"),
        (lambda file: stepwise(file, type="Punctuation", behavior="Isolated"), "has the pre_tokenizer Punctuation"),
        (lambda file: split(file, "(a").encode("a"), r"cannot be parted by one of \['\(a'\]"),
    ],
)
def test_steps_that_are_not_known_are_refused(trained_gpt4, make, message):
    with pytest.raises(UserError, match=message):
        make(trained_gpt4)


def test_gpt2_leaves_nothing_between_words():
    """Its marks stand behind words alone, which is right only where words follow each other."""
    kinds = " \n\u3000a1'.\u0301中s"
    texts = tf.constant(["".join(letters) for letters in itertools.product(kinds, repeat=3)])
    left = tf.strings.regex_replace(texts, re2_pattern(GPT2_PATTERN).words, "")
    assert set(left.numpy().tolist()) == {b""}
    assert not any(word.startswith(b"\xff") for word in MarkWords([GPT2_PATTERN])(texts).numpy())
