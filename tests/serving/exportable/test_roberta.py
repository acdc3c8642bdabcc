"""RoBERTa behind strings: which blanks belong to masks and words. The rest is in the contract."""

import pytest
import tensorflow as tf

from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from serving.samples import whole_words

pytestmark = pytest.mark.usefixtures("eagerly")


def test_a_mask_takes_in_the_blank_before_it(serve, roberta_tokenizer):
    """As transformers reads it."""
    _, served = serve("words alone", True, "roberta")
    batch = served.exportable.masked_text(tf.constant(["the <mask> sat"]))
    row = [0, *roberta_tokenizer.encode("the"), 4, *roberta_tokenizer.encode(" sat"), 2]
    assert batch.input_ids[0].numpy().tolist() == row
    assert whole_words(roberta_tokenizer).tolist() == ["t", "the"]


def test_words_are_tokenized_with_a_blank_before_each(serve, roberta_tokenizer):
    """As transformers does with words and add_prefix_space: here by the `tokenizers` library."""
    library = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    theirs = library.Tokenizer.from_str(roberta_tokenizer.vocabulary.decode())
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    texts = ["the cat  sat", "Ünïcode 漢字 🙂\ttab ", "it's 12 the", ""]
    words = [text.split() for text in texts]
    expected = [theirs.encode(row, is_pretokenized=True) for row in words]
    rows = tagged_rows([TaggedExample(row, None) for row in words], roberta_tokenizer, 32, training=False)
    _, served = serve("token classifier", True, "roberta", max_seq_length=32)
    batch = served.exportable.words(tf.constant(texts))
    for number, (row, encoding) in enumerate(zip(words, expected)):
        ids, tokens = encoding.ids[:32], range(len(encoding.ids))
        heads = [min(i for i in tokens if encoding.word_ids[i] == word) for word in range(len(row))]
        assert rows.tokens["input_ids"][number].tolist() == ids
        assert rows.heads[number].tolist() == batch.columns[number].numpy()[: len(row)].tolist() == heads
        assert batch.batch.input_ids[number].numpy()[: len(ids)].tolist() == ids
    own_blank = tagged_rows([TaggedExample([" the", "", "cat"], None)], roberta_tokenizer, 32, training=False)
    ids = [0, *roberta_tokenizer.encode(" the"), 3, *roberta_tokenizer.encode(" cat"), 2]
    assert own_blank.tokens["input_ids"][0].tolist() == ids
