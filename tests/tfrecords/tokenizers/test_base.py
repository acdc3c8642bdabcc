"""What every kind of tokenizer does: its graph is its twin, and it is saved, pickled and exported as it is."""

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.refusals import refused
from tests.tfrecords.tokenizers.twins import (
    HARD_TEXTS,
    assert_stays_the_same,
    assert_twins,
    raw_bytes,
    texts,
    wordpiece,
)
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.in_graph import split_words
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

KINDS = (
    *("SentencePiece", "SentencePiece with accents", "SentencePiece without rules"),
    *("WordPiece", "WordPiece with accents", "byte-level BPE"),
)
# Words with accents, composed and taken apart.
german = st.lists(st.sampled_from(["schön", "SCHO\u0308N", "Straße", "ÜBER", "über", "für", "ä", "A\u0308", "5,"])).map(
    " ".join
)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def one(kind, request):
    """A tokenizer of the kind."""
    if kind.startswith("byte"):
        return request.getfixturevalue("bpe")
    if kind == "WordPiece with accents":
        return wordpiece("schön", "schon", "sch", "##ön", keep_accents=True)
    if kind == "WordPiece":
        return request.getfixturevalue("small_wordpiece")
    if kind == "SentencePiece with accents":
        return request.getfixturevalue("german_tokenizer")
    tokenizer = request.getfixturevalue("tokenizer")
    if kind == "SentencePiece":
        return tokenizer
    # SentencePiece calls such a model's rules `identity`; it gets ALBERT's.
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    proto.normalizer_spec.name, proto.normalizer_spec.precompiled_charsmap = "identity", b""
    plain = SentencePieceTokenizer(proto.SerializeToString())
    assert plain.encode("Élan  VITAL") == tokenizer.encode("elan vital")
    return plain


# An example holds many texts, and takes up to 50 ms of operations.
@settings(max_examples=15)
@given(batch=st.lists(texts | raw_bytes | german, max_size=12))
@example(batch=HARD_TEXTS)
@example(batch=["cafe\u0301s Café", "", " 2,000, x", "a" * 201])
def test_the_graph_gives_the_ids_and_offsets_of_python(one, batch):
    assert_twins(one, batch)


@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
@given(text=texts)
def test_what_no_token_covers_is_no_text(one, text):
    covered = {place for start, end in one.encode_with_offsets([text])[2] for place in range(start, end)}
    assert one.encode("".join(character for place, character in enumerate(text) if place not in covered)) == []


def test_saved_loaded_and_pickled_it_is_the_same(one, kind, tmp_path):
    assert_stays_the_same(one, tmp_path, ["The unwanted, 5, thing", "Schön und schon"], published=False)
    if kind == "WordPiece with accents":
        with refused("saved with keep_accents=True; leave out"):
            load_tokenizer(tmp_path / "own", keep_accents=False)


@pytest.mark.parametrize("kind", ["SentencePiece", "WordPiece", "byte-level BPE"], indirect=True)
def test_an_export_holds_the_vocabulary_and_operations_that_old_servers_have(one, kind, tmp_path):
    module = tf.Module()
    module.tokenizer = one.in_graph()
    signature = [tf.TensorSpec([None], tf.string)]
    module.ids = tf.function(lambda texts: module.tokenizer(texts).to_tensor(), input_signature=signature)
    tf.saved_model.save(module, tmp_path)
    text = "the unwanted, It's 5, 中"
    assert tf.saved_model.load(str(tmp_path)).ids([text]).numpy()[0].tolist() == one.encode(text)
    graph = module.ids.get_concrete_function().graph.as_graph_def()
    ops = {node.op for node in [*graph.node, *(node for f in graph.library.function for node in f.node_def)]}
    # The one custom operation, which old servers know.
    custom_op = "WordpieceTokenizeWithOffsets" if kind == "WordPiece" else "SentencepieceTokenizeOp"
    assert {op for op in ops if "piece" in op.lower() or "TFText" in op or "UTF8" in op} == {custom_op}
    if one.kind == "bpe":
        assert not any(word in op for op in ops for word in ("Table", "While", "Variable"))


@settings(max_examples=25)
@given(
    batch=st.lists(
        st.text(st.sampled_from("ab é\t\n 日\u00a0\u2003\u3000\u200b\x1c\x85"), max_size=15), min_size=1, max_size=8
    )
)
def test_words_of_a_graph_are_what_stands_between_spaces(batch):
    words, starts, ends = split_words(tf.constant(batch))
    assert starts.dtype == ends.dtype == tf.int32
    for row, text in enumerate(batch):
        expected = text.split()
        assert [word.decode() for word in words[row].numpy()] == expected
        assert [text[a:b] for a, b in zip(starts[row].numpy(), ends[row].numpy())] == expected


def test_what_is_no_tokenizer_is_refused(tmp_path):
    files = {"junk.model": b"\x00junk", "empty.model": b"", "junk.txt": b"a\nb\n", "bytes.txt": b"\xff\xfe"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name in (*files, "nowhere.model", ""):
        with refused("tokenizer"):
            load_tokenizer(tmp_path / name)


def test_a_changed_vocabulary_is_noticed(small_wordpiece, tmp_path):
    small_wordpiece.save(tmp_path)
    path = tmp_path / "vocab.txt"
    for content in (path.read_bytes() + b"more\n", b"the 12\n"):
        path.write_bytes(content)
        with refused("is not the vocabulary") as error:
            load_tokenizer(tmp_path)
        assert not isinstance(error.value, UnknownTokenizer)
