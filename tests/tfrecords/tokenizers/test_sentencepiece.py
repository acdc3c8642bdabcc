# ruff: noqa: RUF001
import unicodedata

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.tfrecords.tokenizers.twins import HARD_TEXTS, assert_twins, ids_of, raw_bytes, read_rows, texts
from tfrecords.base.errors import UserError
from tfrecords.tokenizers import normalization
from tfrecords.tokenizers.loading import load_tokenizer, read_tokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.training import train_tokenizer, vocabulary_listing

# Words with accents, composed and taken apart.
german = st.lists(st.sampled_from(["schön", "SCHO\u0308N", "Straße", "ÜBER", "über", "für", "ä", "A\u0308", "5,"])).map(
    " ".join
)


@settings(max_examples=150, deadline=None)
@given(texts)
def test_rules_are_the_preprocessing_and_then_nmt_nfkc(text):
    # Python lowers a capital sigma at the end of a word to a final one; the rules see one character at a time.
    text = text.replace("Σ", "")
    plain = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c)).lower()
    base = sentencepiece.SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=True
    )
    assert normalization.albert_normalizer(True).normalize(text) == base.normalize(plain)


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, max_size=4))
def test_graph_gives_the_same_ids(tokenizer, batch):
    assert_twins(tokenizer, batch)


@settings(max_examples=60, deadline=None)
@given(st.lists(raw_bytes, max_size=4))
def test_graph_reads_bytes_that_are_not_utf8_as_python(tokenizer, batch):
    assert_twins(tokenizer, batch)


def test_graph_gives_the_same_ids_on_hard_texts(tokenizer):
    assert_twins(tokenizer, HARD_TEXTS)


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
    assert [tokenizer.id_to_piece(i) for i in tokenizer.encode("in 1999, he")] == ["▁in", "▁1999", ",", "▁he"]
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


def test_a_model_without_rules_of_its_own_gets_alberts(tokenizer):
    """SentencePiece calls such a model's rules `identity`."""
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    proto.normalizer_spec.name, proto.normalizer_spec.precompiled_charsmap = "identity", b""
    plain = SentencePieceTokenizer(proto.SerializeToString())
    assert plain.encode("Élan  VITAL") == tokenizer.encode("elan vital")
    assert_twins(plain, HARD_TEXTS)


def test_cased_keeps_case_and_strips_accents(tokenizer):
    assert normalization.albert_normalizer(False).normalize("Élan VITAL") == "Elan VITAL"


@settings(max_examples=100, deadline=None)
@given(texts)
def test_with_accents_the_rules_are_composition_and_lower_case(text):
    text = unicodedata.normalize("NFC", text.replace("``", "").replace("''", "")).replace("Σ", "")
    base = sentencepiece.SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=True
    )
    plain = "".join(" " if c.isspace() else unicodedata.normalize("NFKC", c).lower() for c in text)
    assert normalization.albert_normalizer(True, True).normalize(text) == base.normalize(plain)


def test_german_keeps_its_umlauts_however_they_are_written():
    for text in ("SCHÖN, Straße", "SCHO\u0308N, Straße"):
        assert normalization.albert_normalizer(True, True).normalize(text) == "schön, straße"
        assert normalization.albert_normalizer(False, True).normalize(text) == "SCHÖN, Straße"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(texts, german), max_size=4))
def test_with_accents_graph_and_library_give_the_same_ids(german_tokenizer, batch):
    assert_twins(german_tokenizer, batch)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(texts, german).map(lambda text: "".join(text.split())), max_size=4))
def test_with_accents_the_segmenter_gives_the_librarys_ids(german_tokenizer, batch):
    assert german_tokenizer._segmenter is not None
    ours, theirs = german_tokenizer._segmenter.encode(batch), german_tokenizer._encode_by_library(batch)
    assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]


def test_the_model_itself_knows_that_it_keeps_accents(german_tokenizer, tokenizer, tmp_path):
    assert german_tokenizer.keep_accents
    assert german_tokenizer.decode(german_tokenizer.encode("Schöne Grüße")) == "schöne grüße"
    assert german_tokenizer.encode("schon") != german_tokenizer.encode("schön")
    (tmp_path / "stripped.model").write_bytes(tokenizer.vocabulary)
    with pytest.raises(UserError, match="strips accents by its own rules"):
        load_tokenizer(tmp_path / "stripped.model", keep_accents=True)
    stripped = SentencePieceTokenizer(german_tokenizer.vocabulary, keep_accents=False)
    assert stripped.encode("schön") == stripped.encode("schon") and stripped.sha256 != german_tokenizer.sha256


def test_the_model_itself_knows_its_case(tmp_path):
    lines = [f"Der Bär sah {animal} am See" for animal in ("Fuchs", "Hase", "Wolf", "Dachs")] * 20
    for lower_case in (True, False):
        path = tmp_path / f"{lower_case}.model"
        path.write_bytes(train_tokenizer(lines, 60, lower_case, hard_vocab_limit=False))
        for tokenizer in (load_tokenizer(path), load_tokenizer(path, lower_case), read_tokenizer(path)):
            assert tokenizer.lower_case == lower_case
            assert (tokenizer.encode("BÄR") == tokenizer.encode("bär")) == lower_case
    with pytest.raises(UserError, match=r"True.model' lower-cases by its own rules; give --lower_case, or"):
        load_tokenizer(tmp_path / "True.model", lower_case=False)
    with pytest.raises(UserError, match=r"False.model' keeps capitals by its own rules; give --nolower_case, or"):
        read_tokenizer(tmp_path / "False.model", lower_case=True)


def test_a_cased_model_that_was_made_to_lower_case_goes_on_to(tmp_path):
    lines = [f"{word.upper()} {word.title()} {word}" for word in ("bear", "fox", "hare", "wolf", "badger")] * 9
    model = model_pb2.ModelProto.FromString(train_tokenizer(lines, 60, False, hard_vocab_limit=False))
    model.normalizer_spec.name = "published"
    (tmp_path / "spiece.model").write_bytes(SentencePieceTokenizer(model.SerializeToString(), True).vocabulary)
    assert read_tokenizer(tmp_path / "spiece.model").lower_case
    (tmp_path / "spiece.model").write_bytes(model.SerializeToString())
    assert not read_tokenizer(tmp_path / "spiece.model").lower_case


def test_with_accents_an_umlaut_within_a_word_begins_none(german_tokenizer):
    starts = dict(zip(german_tokenizer.pieces, german_tokenizer.word_starts))
    assert not starts["ü"] and not starts["ß"] and starts["–"]


def test_word_starts(tokenizer):
    starts = dict(zip(tokenizer.pieces, tokenizer.word_starts))
    assert starts["▁the"]
    assert starts[","]
    assert starts["<unk>"]
    assert not starts["s"]
    assert not starts["ing"]


def test_training_is_reproducible_and_has_alberts_layout(corpus_file):
    lines = corpus_file.read_text(encoding="utf-8").split("\n")
    model = train_tokenizer(lines, 600)
    assert model == train_tokenizer(lines, 600)
    listing = vocabulary_listing(model).split("\n")
    pieces = [line.split("\t")[0] for line in listing]
    assert pieces[:13] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert len(listing) == 601


def test_too_little_text_names_the_largest_vocabulary(corpus_file):
    with pytest.raises(UserError, match=r"set it to \d+ or less"):
        train_tokenizer(corpus_file.read_text(encoding="utf-8").split("\n"), 20000)
    with pytest.raises(UserError, match="no text"):
        train_tokenizer([], 1000)
