"""One door for every folder: the model, its tokenizer and its task, and what does not belong together."""

import json

import pytest
import tensorflow as tf

from albert_tf import AlbertClassifier, AlbertEncoder
from albert_tf.checkpoints import save_huggingface, save_official
from albert_tf.loading import load as loading
from tests.albert_tf.tiny import small, table
from tests.refusals import refused
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.training import train_bpe

pytestmark = pytest.mark.usefixtures("eagerly")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
VOCABULARY = "\n".join(PIECES)


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
    "a tokenizer.json": (lambda model, own: write_tokenizer("wordpiece", own), ""),
    "fewer pieces": (lambda model, own: _vocabulary(own, PIECES[:-1]), "7 pieces, "),
    "a word more": (lambda model, own: _vocabulary(own, [*PIECES[:-1], "c"]), "piece 7 is 'c', not '##c'"),
    "special pieces elsewhere": (
        lambda model, own: _vocabulary(own, [*PIECES[4::-1], *PIECES[5:]]), r"\[SEP\] has the id 1, not 3"
    ),
    "another kind": (lambda model, own: write_tokenizer("bpe", own).parent, "kind bpe, not wordpiece")
}  # fmt: skip


def _vocabulary(folder, pieces, line_end="\n"):
    path = folder / "other.txt"
    path.write_text("\n".join(pieces), newline=line_end)
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
            assert loading.load(folder, given, other_tokenizer=True).tokenizer.vocab_size in (7, 262)


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
    library, path = pytest.importorskip("tokenizers", reason="needs the package tokenizers"), folder / "tokenizer.json"
    if kind == "bpe":
        path.write_bytes(train_bpe(["bc bc"], 262))
        return path
    tokenizer = library.Tokenizer(library.models.WordPiece({p: n for n, p in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path))
    return path


@pytest.fixture
def folder(tmp_path):
    """A published classifier whose table has a row for each line of vocab.txt."""
    save_huggingface(AlbertClassifier(encoder(), 2), tmp_path)
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    return tmp_path


# A file, what it says, and whether a text can hold the token.
WITHOUT_ROW = table("""
    added_tokens.json     | {"[E1]": 8}                                                   | yes
    tokenizer_config.json | {"do_lower_case": true, "additional_special_tokens": ["[E1]"]} | yes
    tokenizer_config.json | {"do_lower_case": true, "bos_token": "<s>"}                   | no
""")


@pytest.mark.parametrize("name, values, can_occur", WITHOUT_ROW)
def test_only_a_text_with_such_a_token_is_refused(folder, caplog, name, values, can_occur):
    (folder / name).write_text(values)
    with caplog.at_level("WARNING"):
        loaded = loading.load(folder)
    assert ("adds '[E1]', for which the model's table has no row" in caplog.text) == (can_occur == "yes")
    assert len(loaded.predict(["a bc", "<s> bcs"])) == 2
    if can_occur == "yes":
        with refused(r"a text holds '\[E1\]', an added token, .*8 rows"):
            loaded.predict(["a [E1] bc"])
        graph = loaded.tokenizer.in_graph()
        assert graph(["a bc"]).to_list() == [loaded.tokenizer.encode("a bc")]
        for call in (graph, graph.with_offsets):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"a text holds '\[E1\]', an added token, .*8 row"):
                call(["a bc", "a [E1] bc"])
