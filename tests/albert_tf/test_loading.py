"""One door for every folder: the model, its tokenizer and its task, and what does not belong together."""

import json

import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertSentenceEmbedder
from albert_tf.checkpoints import save_huggingface, save_official
from albert_tf.loading import load as loading
from albert_tf.loading.load import convert
from tests.albert_tf.tiny import assert_same_weights, small
from tests.refusals import refused
from tfrecords.tokenizers.bytes.byte_bpe_file import byte_characters
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.training import BPE_SPECIAL

pytestmark = pytest.mark.usefixtures("eagerly")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
VOCABULARY = "".join(f"{piece}\n" for piece in PIECES)


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "vocab.txt").write_text(VOCABULARY)
    return load_tokenizer(tmp_path / "pieces" / "vocab.txt")


def encoder(**changes):
    return AlbertEncoder(small(**{"vocab_size": 8, "num_hidden_layers": 1} | changes))


def written(folder, rows, vocabulary="", is_albert=False, **values):
    """A BERT, or an ALBERT, as transformers saves one, whose configuration has some values more."""
    save_huggingface(encoder(vocab_size=rows, **{} if is_albert else {"sharing": "none", "embedding_size": 16}), folder)
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | values))
    if vocabulary:
        (folder / "vocab.txt").write_text(vocabulary)
    return folder


def write_modules(folder, pooling, *others, path=""):
    kinds = [("Transformer", path), ("Pooling", "1_Pooling"), *((name, f"2_{name}") for name in others)]
    modules = [{"path": where, "type": f"sentence_transformers.models.{kind}"} for kind, where in kinds]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    modes = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes | {pooling: True}))


def test_folders_of_sentence_transformers_embed_as_they_say(tmp_path, caplog):
    folder, model = tmp_path / "st", encoder()
    inside = folder / "0_Transformer"
    save_huggingface(model, inside)
    (inside / "vocab.txt").write_text(VOCABULARY)
    (inside / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    write_modules(folder, "pooling_mode_cls_token", path="0_Transformer")
    loaded = loading.load(folder)
    assert isinstance(loaded.model, AlbertSentenceEmbedder) and loaded.tokenizer.pieces == PIECES
    assert (loaded.model.pooling, loaded.model.normalize) == ("cls", False)
    assert_same_weights(loaded.model.encoder, model)
    # Cut where sentence-transformers cuts it.
    vectors = loaded.predict(["a b a b b"])
    assert_array_equal(vectors, loaded.predict(["a b a"]))
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 4}')
    loaded = loading.load(folder)
    assert_array_equal(loaded.predict(["a b a"]), vectors[:, :4])
    exported = loaded.export(tmp_path / "export", max_seq_length=8)
    served = tf.saved_model.load(str(exported)).signatures["serving_default"](text=tf.constant(["a b a"]))
    assert_allclose(served["embedding"], vectors[:, :4], atol=1e-6)
    convert(folder, tmp_path / "model.keras", "keras")
    assert_array_equal(loading.load(tmp_path / "model.keras").predict(["a b"]), loaded.predict(["a b"]))
    convert(folder, tmp_path / "plain", "huggingface")
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 0}')
    with refused("truncate_dim must be a number"):
        loading.load(folder)
    assert "how texts are pooled has no form there" in caplog.text
    assert type(loading.load(tmp_path / "plain").model) is AlbertEncoder


def test_a_model_that_begins_otherwise_is_refused(tmp_path):
    save_huggingface(encoder(), tmp_path)
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.CLIPModel", "path": ""}]')
    with refused(r"begins with a .*CLIPModel"):
        loading.load(tmp_path)


def test_another_tokenizer_of_equal_size_is_refused_where_the_folder_knows_its_own(tokenizer, tmp_path):
    folder, other = tmp_path / "run", tmp_path / "vocab.txt"
    AlbertClassifier(encoder(), 2).save(tokenizer.save(folder) or folder / "model.keras")
    other.write_text(VOCABULARY.replace("\nb", "\nd"))
    with refused(r"vocab\.txt' is another tokenizer than the model in .*run' was trained with"):
        loading.load(folder, str(other))
    assert loading.load(folder, str(tmp_path / "pieces" / "vocab.txt")).tokenizer.sha256 == tokenizer.sha256
    # A published folder does not say what it was trained with.
    save_official(encoder(), tmp_path / "official")
    assert loading.load(tmp_path / "official", str(other)).tokenizer.pieces[-2] == "d"


# What is given for a model of PIECES, and what the message says of it; empty where it is the model's own.
GIVEN = {
    "the file next to the weights": (lambda model, own: model / "vocab.txt", ""),
    "a copy": (lambda model, own: _vocabulary(own, PIECES), ""),
    "a copy with other line ends": (lambda model, own: _vocabulary(own, PIECES, "\r\n"), ""),
    "a tokenizer.json": (lambda model, own: write_tokenizer("wordpiece", own) and own / "tokenizer.json", ""),
    "fewer pieces": (lambda model, own: _vocabulary(own, PIECES[:-1]), "7 pieces, "),
    "a word more": (lambda model, own: _vocabulary(own, [*PIECES[:-1], "c"]), "piece 7 is 'c', not '##c'"),
    "special pieces elsewhere": (
        lambda model, own: _vocabulary(own, [*PIECES[4::-1], *PIECES[5:]]), r"\[SEP\] has the id 1, not 3"
    ),
    "another kind": (lambda model, own: write_tokenizer("bpe", own) and own, "kind bpe, not wordpiece")
}  # fmt: skip


def _vocabulary(folder, pieces, line_end="\n"):
    path = folder / "other.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), newline=line_end)
    return path


def test_another_tokenizer_than_the_published_one_is_refused_unless_it_is_asked_for(tmp_path):
    published = {rows: written(tmp_path / str(rows), rows, VOCABULARY) for rows in (8, 300)}
    for number, (name, (give, said)) in enumerate(GIVEN.items()):
        folder = published[300 if name == "another kind" else 8]
        (tmp_path / f"given {number}").mkdir()
        given = str(give(folder, tmp_path / f"given {number}"))
        if not said:
            assert loading.load(folder, given).tokenizer.pieces == PIECES, name
            continue
        with refused(rf"another tokenizer than the model in .*{said}.*--other_tokenizer to use"):
            loading.load(folder, given)
        if name in ("fewer pieces", "another kind"):
            assert loading.load(folder, given, other_tokenizer=True).tokenizer.vocab_size in (7, 263)


def test_without_a_tokenizer_next_to_the_weights_what_they_say_is_compared(tokenizer, tmp_path):
    given = str(tmp_path / "pieces" / "vocab.txt")
    for rows, ids, said in (
        (8, {}, ""),
        (64, {"pad_token_id": 0, "cls_token_id": 2}, ""),
        (128, {}, ""),
        (136, {}, "8 pieces, and the model's table has 136 rows"),
        (9, {}, "table has 9 rows"),
        (8, {"pad_token_id": 1}, r"\[PAD\] has the id 0, not 1"),
        # Chinese ALBERTs have those of SentencePiece models in their configuration.
        (8, {"is_albert": True, "bos_token_id": 6, "eos_token_id": 7}, ""),
    ):
        folder = written(tmp_path / "bare", rows, **ids)
        if said:
            with refused(f"another tokenizer than .*{said}"):
                loading.load(folder, given)
        found = loading.load(folder, given, other_tokenizer=bool(said))
        assert found.tokenizer.sha256 == tokenizer.sha256


def test_a_folders_own_tokenizer_has_a_piece_for_nearly_every_row(tmp_path, caplog):
    for rows in (135, 136):
        assert loading.load(written(tmp_path, rows, VOCABULARY)).tokenizer.pieces == PIECES
        assert ("has 8 pieces, the model's table 136 rows" in caplog.text) == (rows == 136)
    with refused("has 8 pieces, the model only 7; they do not belong together"):
        loading.load(written(tmp_path, 7))


def write_tokenizer(kind, folder):
    """A tokenizer.json of the `tokenizers` library, alone."""
    library = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    models, normalizers, pre_tokenizers = library.models, library.normalizers, library.pre_tokenizers
    numbers = {piece: number for number, piece in enumerate(PIECES)}
    if kind == "wordpiece":
        tokenizer = library.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    else:
        pieces = [*BPE_SPECIAL, *byte_characters(), "Ġb", "Ġbc"]
        tokenizer = library.Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [("Ġ", "b"), ("Ġb", "c")]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.post_processor = library.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        tokenizer.add_special_tokens(BPE_SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer
