"""The converter and what belongs to a model besides its weights: names of classes, tokenizer, several files."""

import io
import json
import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file
from sentencepiece import SentencePieceTrainer

from albert_tf import AlbertClassifier, AlbertTokenClassifier
from albert_tf.checkpoints import formats, load_huggingface, save_huggingface
from albert_tf.checkpoints.formats import load_keras
from albert_tf.convert_checkpoint import ConvertSettings, main
from albert_tf.loading import load as loading
from albert_tf.loading.load import convert
from tests.albert_tf.tiny import assert_same_weights, small
from tests.refusals import refused
from tfrecords.tokenizers.loading import load_tokenizer

CONFIG = small(vocab_size=8, num_hidden_layers=1)
NAMES = ("negative", "neutral", "positive")
LABELS = {"id2label": {str(i): name for i, name in enumerate(NAMES)}}
LABELS["label2id"] = {name: i for i, name in enumerate(NAMES)}
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nA\nb\n##c\n"


def config_of(folder, **changes):
    """What a folder's config.json says, with changes that are written to it."""
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(values))
    return values


@pytest.fixture
def published(tmp_path):
    """A classifier as transformers saves one."""
    folder = save_huggingface(AlbertClassifier(CONFIG, 3), tmp_path / "published")
    # Names that transformers made up are none.
    assert "LABEL_2" in (folder / "config.json").read_text() and load_huggingface(folder).labels is None
    config_of(folder, **LABELS)
    (folder / "vocab.txt").write_text(VOCABULARY)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return folder


def test_names_and_tokenizer_go_to_keras_and_back(published, tmp_path):
    convert(published, tmp_path / "keras" / "model.keras", "keras")
    assert load_keras(tmp_path / "keras").labels == NAMES
    convert(tmp_path / "keras" / "model.keras", tmp_path / "back", "huggingface")
    assert config_of(tmp_path / "back").items() >= LABELS.items()
    assert json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())["do_lower_case"] is False
    assert (tmp_path / "back" / "vocab.txt").read_text() == VOCABULARY
    again = loading.load(tmp_path / "back")
    assert again.tokenizer.sha256 == loading.load(published).tokenizer.sha256 and not again.tokenizer.lower_case
    assert_same_weights(again.model, load_huggingface(published))


@pytest.mark.parametrize("changes", [{}, {"position_offset": 2, "max_position_embeddings": 34, "sharing": "none"}])
def test_longer_rows_keep_what_short_ones_had_and_copy_positions(tmp_path, changes):
    model = AlbertClassifier(CONFIG.replace(**changes), 3, labels=NAMES)
    model.save(tmp_path / "model.keras")
    longer = convert(tmp_path / "model.keras", tmp_path / "longer.keras", "keras", count=80)
    assert longer.labels == NAMES and longer.encoder.config.max_seq_length == 80
    ids = np.random.default_rng(0).integers(5, 8, (2, 80)).astype("int32")
    assert_array_equal(longer(ids[:, :32]), model(ids[:, :32]))
    table = np.asarray(longer.encoder.embeddings.position_embeddings)[-80:]
    assert_array_equal(table[:48], table[32:])
    windows = convert(tmp_path / "longer.keras", tmp_path / "windows.keras", "keras", attention_window=79)
    assert_allclose(windows(ids), longer(ids), atol=1e-6)
    assert windows.encoder.config.attention_window == 79
    shorter = convert(tmp_path / "longer.keras", tmp_path / "shorter.keras", "keras", count=32)
    assert_same_weights(shorter, model)


def test_a_fine_tuned_folder_brings_its_names(tmp_path):
    AlbertTokenClassifier(CONFIG, 2).save(tmp_path / "model.keras")
    task = {"kind": "tagging", "labels": ["O", "B-PER"]}
    (tmp_path / "task.json").write_text(json.dumps(task | {"metrics": {"f1": 1}}))
    assert loading.load(tmp_path).model.labels == ("O", "B-PER")
    convert(tmp_path, tmp_path / "out", "huggingface")
    assert config_of(tmp_path / "out")["id2label"] == {"0": "O", "1": "B-PER"}
    convert(tmp_path, tmp_path / "longer" / "model.keras", "keras", count=40)
    # What was measured was of rows as they were.
    assert json.loads((tmp_path / "longer" / "task.json").read_text()) == task


def test_another_tokenizer_in_the_way_stops_it(published, tmp_path):
    (tmp_path / "vocab.txt").write_text(VOCABULARY.replace("b", "x"))
    with refused(r"holds another model's tokenizer; choose another folder for '.*base.keras'"):
        convert(published, tmp_path / "base.keras", "keras")
    assert not (tmp_path / "base.keras").exists()


def test_weights_in_several_files_are_read_by_their_index(published):
    model = load_huggingface(published)
    tensors = sorted(load_file(published / "model.safetensors").items())
    (published / "model.safetensors").unlink()
    names = {}
    for file, part in {"model-1.safetensors": tensors[:3], "model-2.safetensors": tensors[3:]}.items():
        save_file(dict(part), published / file)
        names |= dict.fromkeys(dict(part), file)
    index = published / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert formats.load(index).count_params() == model.count_params()
    assert_same_weights(loading.load(published).model, model)
    (published / "model-2.safetensors").unlink()
    with refused(r"no '.*model-2\.safetensors'; copy or download it again"):
        loading.load(published)
    index.write_text("{}")
    with refused("does not say which files hold the weights"):
        loading.load(published)


def _sentencepiece_of_xlm_roberta():
    model, text = io.BytesIO(), iter(["a fine film", "the dull film"] * 9)
    SentencePieceTrainer.train(sentence_iterator=text, model_writer=model, vocab_size=16, minloglevel=2)
    return model.getvalue()


def _json(**model):
    return json.dumps({"model": model, "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}}).encode()


_PIECES = [[piece, 0.0] for piece in ("<pad>", "</s>", "<unk>", "\u2581a")]
UNKNOWN = [
    ("tokenizer.json", lambda: _json(type="Unigram", unk_id=2, vocab=_PIECES), r"is not followed; .* by ids"),
    ("sentencepiece.bpe.model", _sentencepiece_of_xlm_roberta, "has no piece <pad>, .* by ids"),
    ("vocab.txt", lambda: b"the 1907\nto@@ 12\n", r"has no line \[PAD\], .* by ids"),
    ("tokenizer.json", lambda: _json(type="BPE", vocab={"a": 0}, merges=[]), "a BPE tokenizer of characters"),
    ("tokenizer.json", lambda: _json(type="WordLevel", vocab={"a": 0}), "holds a WordLevel tokenizer, .* by ids"),
]


@pytest.mark.parametrize("name, content, message", UNKNOWN)
def test_files_of_a_kind_that_is_not_known_stop_no_load(published, caplog, name, content, message):
    """T5's, BERTweet's: their models load, their texts are for transformers to tokenize."""
    (published / "vocab.txt").unlink()
    (published / name).write_bytes(content())
    assert loading.load(published).tokenizer is None and re.search(message, caplog.text)
    for given in (published, published / name):
        with refused(message):
            loading.load(published, tokenizer=str(given))
        with refused(message):
            load_tokenizer(given)


def test_pytorch_files_are_read_by_pytorch(published):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = load_huggingface(published)
    from safetensors.torch import load_file as load_for_torch

    torch.save(load_for_torch(published / "model.safetensors"), published / "pytorch_model.bin")
    (published / "model.safetensors").unlink()
    assert_same_weights(loading.load(published / "pytorch_model.bin").model, model)
    assert_same_weights(loading.load(published, allow_pickle=True).model, model)
    (published / "pytorch_model.bin").write_bytes(b"no weights")
    with refused(r"cannot read .*pytorch_model\.bin' as PyTorch weights: it is damaged"):
        loading.load(published)


def test_without_pytorch_its_files_say_what_to_do(published, monkeypatch):
    (published / "model.safetensors").rename(published / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    for path in (published, published / "pytorch_model.bin"):
        with refused(r"pip install torch; or download the same model's model\.safetensors"):
            loading.load(path, allow_pickle=True)


def test_a_model_is_not_converted_into_its_own_folder(tmp_path):
    settings = ConvertSettings(input=f"{tmp_path}", output=f"{tmp_path}/", to="huggingface")
    with refused("is --input, whose files would be replaced"):
        main(settings)
