# ruff: noqa: RUF001
import re
import unicodedata

import pytest
import sentencepiece
from hypothesis import given
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.refusals import refused
from tests.tfrecords.tokenizers.twins import assert_twins, ids_of, read_rows, texts
from tfrecords.tokenizers import normalization
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer

NMT_NFKC = sentencepiece.SentencePieceNormalizer(
    rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=True
)


@given(texts)
def test_rules_are_the_preprocessing_and_then_nmt_nfkc(text):
    # Python lowers a capital sigma at the end of a word to a final one; the rules see one character at a time.
    text = text.replace("Σ", "")
    plain = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c)).lower()
    assert normalization.albert_normalizer(True).normalize(text) == NMT_NFKC.normalize(plain)


def test_gold_ids_of_the_published_vocabulary(shared):
    tokenizer = load_tokenizer(shared / "data/spm/30k-clean.model")
    rows = read_rows(shared / "gold/tokenization/albert_30k_en.jsonl")
    different = [r["text"] for r, ids in zip(rows, ids_of(tokenizer, [r["text"] for r in rows])) if ids != r["ids"]]
    # The one text with `` and '': the original leaves them, its paper and later copies make them ".
    assert [text for text in different if "``" not in text and "''" not in text] == []
    assert len(different) == 1
    assert_twins(tokenizer, [row["text"] for row in rows])


def test_gold_sentences_of_other_projects(shared):
    tokenizer = load_tokenizer(shared / "data/spm/30k-clean.model")
    assert tokenizer.encode("This is a test") == [48, 25, 21, 1289]
    fox = [14, 2231, 886, 2385, 17659, 84, 14, 16792, 1952, 9]
    assert tokenizer.encode("The quick brown fox jumps over the lazy dog.") == fox
    text = "In  2010, and ５, 19,"
    ids, _, offsets = tokenizer.encode_with_offsets([text])
    assert [tokenizer.id_to_piece(one) for one in ids] == ["▁in", "▁2010", ",", "▁and", "▁5", ",", "▁19", ","]
    assert [text[begin:end].strip() for begin, end in offsets] == ["In", "2010", ",", "and", "５", ",", "19", ","]
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]


def test_a_piece_that_ends_in_digit_and_comma_is_split(tokenizer):
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    for piece in ("▁1999,", "4321,", "▁1999", "4321"):
        proto.pieces.add(piece=piece, score=0.0)
    model = proto.SerializeToString()
    text = "in 1999, and 14321, or 1999 b,"
    assert "▁1999," in sentencepiece.SentencePieceProcessor(model_proto=model).encode(text, out_type=str)
    tokenizer = SentencePieceTokenizer(model)
    pieces = [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)]
    assert pieces[:3] == ["▁in", "▁1999", ","]
    at = pieces.index("4321")
    assert pieces[at + 1] == ","
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert_twins(tokenizer, [text, "1000,000,", ",", "1999,"])


@pytest.mark.parametrize(
    "rules, text, normalized",
    [
        ((False, False), "Élan VITAL", "Elan VITAL"),
        ((True, True), "SCHÖN, Straße", "schön, straße"),
        ((False, True), "SCHO\u0308N, Straße", "SCHÖN, Straße"),
    ],
)
def test_case_and_accents_go_or_stay_however_they_are_written(rules, text, normalized):
    assert normalization.albert_normalizer(*rules).normalize(text) == normalized


def test_the_model_itself_knows_that_it_keeps_accents(german_tokenizer, tokenizer, tmp_path):
    assert german_tokenizer.keep_accents
    assert german_tokenizer.decode(german_tokenizer.encode("Schöne Grüße")) == "schöne grüße"
    assert german_tokenizer.encode("schon") != german_tokenizer.encode("schön")
    (tmp_path / "stripped.model").write_bytes(tokenizer.vocabulary)
    with refused("strips accents by its own rules"):
        load_tokenizer(tmp_path / "stripped.model", keep_accents=True)
    stripped = SentencePieceTokenizer(german_tokenizer.vocabulary, keep_accents=False)
    assert stripped.encode("schön") == stripped.encode("schon") and stripped.sha256 != german_tokenizer.sha256


def test_the_model_itself_knows_its_case(tmp_path):
    lines = [f"Der Bär sah {animal} am See" for animal in ("Fuchs", "Hase", "Wolf", "Dachs")] * 20
    for lower_case in (True, False):
        path = tmp_path / f"{lower_case}.model"
        path.write_bytes(train_tokenizer(lines, 60, lower_case, hard_vocab_limit=False))
        for tokenizer in (load_tokenizer(path), load_tokenizer(path, lower_case)):
            assert tokenizer.lower_case == lower_case
            assert (tokenizer.encode("BÄR") == tokenizer.encode("bär")) == lower_case
    with refused(r"True.model' lower-cases .*by its own rules; give no other"):
        load_tokenizer(tmp_path / "True.model", lower_case=False)
    with refused(r"False.model' keeps capitals .*by its own rules; give no other"):
        load_tokenizer(tmp_path / "False.model", lower_case=True)


def test_training_is_reproducible_and_has_alberts_layout(corpus_lines):
    model = train_tokenizer(corpus_lines[:1500], 400)
    assert model == train_tokenizer(corpus_lines[:1500], 400)
    pieces = SentencePieceTokenizer(model).pieces
    assert pieces[:13] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert len(pieces) == 400


def test_no_text_is_no_vocabulary():
    with refused("no text"):
        train_tokenizer([], 1000)


LINES = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs, pack them well"] * 20


def size(**settings):
    return SentencePieceTokenizer(train_tokenizer(LINES, **settings)).vocab_size


def test_the_error_names_a_size_that_works():
    with refused(r"--vocab_size=5000; set it to (\d+) or less") as error:
        size(vocab_size=5000)
    limit = int(re.search(r"set it to (\d+)", str(error.value))[1])
    assert size(vocab_size=limit) == limit


def test_without_the_hard_limit_the_text_decides():
    most = size(vocab_size=5000, hard_vocab_limit=False)
    assert 41 < most < 100
    assert size(vocab_size=most - 1, hard_vocab_limit=False) == most - 1


def test_more_characters_than_pieces():
    with refused(r"--vocab_size=32 has no room for the corpus's \d+ characters"):
        size(vocab_size=32)


def test_long_lines_are_trained_on_too():
    long = " ".join(LINES * 5)
    assert len(long) > 4500
    for lines, word in (([*LINES, long + " quagga" * 50], "quagga"), ([long] * 3, "the")):
        model = train_tokenizer(lines, vocab_size=60, hard_vocab_limit=False)
        assert word in "".join(SentencePieceTokenizer(model).pieces)
