import hashlib
import pickle

import pytest
import tensorflow as tf

from tests.tfrecords.tokenizers.twins import graph_function, wordpiece
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.loading import load_tokenizer


def test_round_trip(tokenizer, small_wordpiece, german_tokenizer, tmp_path):
    accents = wordpiece("schön", "schon", keep_accents=True)
    for number, original in enumerate((tokenizer, small_wordpiece, german_tokenizer, accents)):
        original.save(tmp_path / str(number))
        for copy in (load_tokenizer(tmp_path / str(number)), pickle.loads(pickle.dumps(original))):
            assert (copy.sha256, copy.keep_accents) == (original.sha256, original.keep_accents)
            for text in ("The unwanted, 5, thing", "Schön und schon"):
                assert copy.encode(text) == original.encode(text)
    with pytest.raises(UserError, match="saved with keep_accents=True; leave out"):
        load_tokenizer(tmp_path / "3", keep_accents=False)


def test_the_sha256_of_before_accents_could_be_kept_still_holds(small_wordpiece):
    before = hashlib.sha256(b"wordpiece True\n" + small_wordpiece.vocabulary).hexdigest()
    assert small_wordpiece.sha256 == before


def test_graph_is_saved_with_its_vocabulary(tokenizer, small_wordpiece, tmp_path):
    for original in (tokenizer, small_wordpiece):
        module = tf.Module()
        module.tokenizer = original.in_graph()
        module.ids = graph_function(module.tokenizer)
        tf.saved_model.save(module, tmp_path / original.kind)
        loaded = tf.saved_model.load(str(tmp_path / original.kind))
        ids = loaded.ids(tf.constant(["the unwanted, 5,"])).numpy()[0].tolist()
        assert ids == original.encode("the unwanted, 5,")


def test_only_custom_ops_that_old_servers_have(tokenizer, small_wordpiece):
    for original, custom_op in (
        (tokenizer, "SentencepieceTokenizeOp"),
        (small_wordpiece, "WordpieceTokenizeWithOffsets"),
    ):
        graph = graph_function(original.in_graph()).get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        custom = {n.op for n in nodes if "piece" in n.op.lower() or "TFText" in n.op or "UTF8" in n.op}
        assert custom == {custom_op}


def test_what_is_no_tokenizer_is_refused(tmp_path, tokenizer):
    (tmp_path / "junk.model").write_bytes(b"\x00junk")
    (tmp_path / "empty.model").write_bytes(b"")
    (tmp_path / "junk.txt").write_bytes(b"a\nb\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for name in ("junk.model", "empty.model", "junk.txt", "bytes.txt", "nowhere.model", ""):
        with pytest.raises(UserError, match="tokenizer"):
            load_tokenizer(tmp_path / name)


def test_a_changed_vocabulary_is_noticed(tokenizer, small_wordpiece, tmp_path):
    small_wordpiece.save(tmp_path)
    path = tmp_path / "vocab.txt"
    for content in (path.read_bytes() + b"more\n", b"the 12\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not the vocabulary") as error:
            load_tokenizer(tmp_path)
        assert not isinstance(error.value, UnknownTokenizer)
