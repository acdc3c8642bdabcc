"""Added tokens without a row in the model's table load, as in transformers; a text that holds one is refused."""

import pytest
import tensorflow as tf

from albert_tf.checkpoints import save_huggingface
from albert_tf.loading import load as loading
from albert_tf.models.classifiers import AlbertClassifier
from tests.albert_tf.tiny import small, table
from tests.refusals import refused

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "##s"]


@pytest.fixture
def folder(tmp_path):
    """A published classifier whose table has a row for each line of vocab.txt."""
    save_huggingface(AlbertClassifier(small(vocab_size=len(PIECES), num_hidden_layers=1), 2), tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
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
    assert len(loaded.predict(["a film", "<s> films"])) == 2
    if can_occur == "yes":
        with refused(r"a text holds '\[E1\]', an added token, .*8 rows"):
            loaded.predict(["a [E1] film"])
        graph = loaded.tokenizer.in_graph()
        assert graph(["a film"]).to_list() == [loaded.tokenizer.encode("a film")]
        for call in (graph, graph.with_offsets):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"a text holds '\[E1\]', an added token, .*8 row"):
                call(["a film", "a [E1] film"])


def test_more_lines_than_rows_do_not_belong_to_the_model(folder):
    (folder / "vocab.txt").write_text("\n".join([*PIECES, "dog"]))
    with refused("has 9 pieces, the model only 8"):
        loading.load(folder)
