import pytest

from tests.tfrecords.tokenizers.twins import assert_twins, ids_of, read_rows, wordpiece
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer


def test_gold_of_google_research_albert():
    tokenizer = WordPieceTokenizer(
        b"[UNK]\n[CLS]\n[SEP]\nwant\n##want\n##ed\nwa\nun\nrunn\n##ing\n,\n[PAD]\n[MASK]\n", True
    )
    assert tokenizer.encode("UNwant\u00e9d,running") == [7, 4, 5, 10, 8, 9]
    assert tokenizer.encode("unwantedX running") == [0, 8, 9]
    assert tokenizer.encode("") == []


def test_gold_chinese(shared):
    tokenizer = load_tokenizer(shared / "data/spm/bert-zh-vocab.txt")
    rows = read_rows(shared / "gold/tokenization/wordpiece_zh.jsonl")
    assert ids_of(tokenizer, [row["text"] for row in rows]) == [row["ids"] for row in rows]
    assert_twins(tokenizer, [row["text"] for row in rows])
    # [PAD], 99 unused, [UNK], [CLS], [SEP], [MASK], <S>, <T>
    assert tokenizer.special_ids.tolist() == list(range(106))


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("ah\u535a\u63a8zz", "[UNK] [UNK] [UNK] [UNK]"),
        (" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?"),
        ("H\u00e9llo", "hello"),
        ("a\x05\u200bre", "are"),
        ("how\u00a0are\u2028you", "how are you"),
    ],
)
def test_basic_rules(text, pieces):
    tokenizer = wordpiece("hello", "how", "are", "you", "!", "?")
    assert [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)] == pieces.split()


def test_200_characters_are_a_word_and_201_are_none():
    tokenizer = wordpiece("x", "##x")
    assert ids_of(tokenizer, ["x" * 200, "x" * 201]) == [[5] + [6] * 199, [tokenizer.unk_id]]
    assert_twins(tokenizer, ["é" * 200 + " x", "中" * 300, "x" * 200, "x" * 201])


def test_of_equal_lines_the_last_counts():
    tokenizer = wordpiece("the", "a", "the")
    assert tokenizer.encode("the a") == [7, 6]
    assert_twins(tokenizer, ["the a"])


def test_decode_joins_pieces():
    tokenizer = wordpiece("un", "##want", "##ed", "x")
    assert tokenizer.decode(tokenizer.encode("unwanted x")) == "unwanted x"
