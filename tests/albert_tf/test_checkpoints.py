"""Published checkpoints: their inventories, older forms, damaged and unfitting files; see also test_round_trips.py."""

import copy
import json
import logging
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints import load_huggingface, load_keras_hub, load_official, save_huggingface, save_official
from albert_tf.checkpoints.formats import load_keras
from albert_tf.checkpoints.official import checkpoint_prefix, read_tensors, sources_for, write_tensors
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.tiny import assert_same_weights, batch, small
from tests.refusals import refused
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold"
FEATURES = batch()


def pretrainer(**changes):
    return filled(AlbertPretrainer(small(**changes)))


INVENTORIES = {
    "google_albert_base_en": "albert_base_v2",
    "google_albert_large_en": "albert_large_v2",
    "google_albert_base_zh": "albert_base_zh",
    "brightmart_albert_tiny_zh": "albert_tiny_zh",
    "google_code_albert_small_zh_with_slots": "albert_small_zh_google",
}


@pytest.mark.parametrize("file, name", INVENTORIES.items())
def test_published_checkpoints_have_exactly_our_variables(file, name):
    published = {}
    for line in (GOLD / "inventories" / f"{file}.txt").read_text().splitlines()[1:]:
        variable, shape = re.match(r"(\S+) \[(.*?)\]", line).groups()
        if not variable.endswith(("adam_m", "adam_v", "global_step")):
            published[variable] = tuple(int(size) for size in shape.split(", "))
    model = AlbertPretrainer(AlbertEncoder(AlbertConfig.named(name)))
    sources = sources_for(model.encoder.config)
    ours = {
        sources[ours].name: tuple(variable.shape)[:: -1 if sources[ours].transposed else 1]
        for ours, variable in named_variables(model).items()
    }
    assert ours == published


def test_slots_counters_and_a_damaged_state_file_are_passed_over(tmp_path, caplog):
    model = pretrainer()
    prefix = save_official(model, tmp_path)
    tensors = read_tensors(prefix)
    slots = {
        f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "ExponentialMovingAverage")
    }
    write_tensors(prefix, tensors | slots | {"global_step": np.int64(3), "good_steps": np.float32(3)})
    assert_same_weights(load_official(tmp_path), model)
    assert "passed over as what training left: ExponentialMovingAverage, good_steps" in caplog.text
    # What has another shape than the variable may change an answer.
    write_tensors(prefix, tensors | {"bert/pooler/dense/kernel/lora_a": np.zeros([16, 2], "float32")})
    with refused("not part of this model: bert/pooler/dense/kernel/lora_a"):
        load_official(tmp_path)
    for state in (b"\xff\xfe", b"model_checkpoint_path: ", b"\x00" * 9, b""):
        (tmp_path / "checkpoint").write_bytes(state)
        assert checkpoint_prefix(tmp_path) == prefix


def test_an_index_is_written_last(tmp_path, monkeypatch):
    """A checkpoint without one is not there."""
    moved, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: moved.append(str(paths[1])) or replace(*paths))
    prefix = save_official(AlbertEncoder(small()), tmp_path)
    assert moved[:2] == [f"{prefix}.data-00000-of-00001", f"{prefix}.index"]


def test_a_model_with_more_groups_starts_from_the_first_one(tmp_path, caplog):
    save_official(pretrainer(num_hidden_layers=5), tmp_path)
    many = AlbertPretrainer(small(num_hidden_layers=5, num_hidden_groups=3, inner_group_num=2))
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, many)
    assert "group_2/inner_group_1/attention_1/self/query/kernel" in caplog.text
    twice = AlbertEncoder(small(num_hidden_layers=10))
    load_official(tmp_path, twice)
    assert_allclose(many.encoder(FEATURES)["sequence_output"], twice(FEATURES)["sequence_output"], atol=1e-5)


def test_a_classifier_takes_the_encoder_and_what_does_not_fit_is_named(tmp_path, caplog):
    pretrained = pretrainer()
    prefix = save_official(pretrained, tmp_path)
    model = AlbertClassifier(small(), num_classes=3)
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, model)
    assert "cls/predictions/output_bias" in caplog.text and "classifier/kernel" in caplog.text
    assert_same_weights(model.encoder, pretrained.encoder)
    tensors = read_tensors(prefix)
    del tensors["bert/pooler/dense/bias"]
    write_tensors(prefix, tensors | {name: np.zeros(41, "f4") for name in ("cls/predictions/output_bias", "strange")})
    other = AlbertPretrainer(small())
    before = copy.deepcopy(other.get_weights())
    with pytest.raises(UserError) as caught:
        load_official(prefix, other)
    for text in ("missing: bert/pooler/dense/bias", "output_bias (41,), expected (40,)", "strange"):
        assert text in str(caught.value)
    # Nothing of it was changed.
    assert all((then == now).all() for then, now in zip(before, other.get_weights(), strict=True))
    save_official(pretrained.encoder, tmp_path)
    with refused(r"missing: .*cls/seq_relationship/output_weights"):
        load_official(tmp_path, other)


def test_damaged_files_are_refused(tmp_path):
    folder = shutil.copytree(GOLD / "official" / "tiny_groups2", tmp_path / "official")
    index, data = (folder / f"model.ckpt-best{suffix}" for suffix in (".index", ".data-00000-of-00001"))
    tensors = shutil.copytree(GOLD / "huggingface" / "bert", tmp_path / "huggingface") / "model.safetensors"
    unread, saved = "cannot read the TensorFlow checkpoint", tmp_path / "model.keras"
    AlbertEncoder(small()).save(saved)
    for file, load, message in (
        (saved, load_keras, r"model\.keras' is not whole: .* copy it again"), (index, load_official, unread),
        (data, load_official, unread), (tensors, load_huggingface, "is not whole, or no safetensors")
    ):  # fmt: skip
        whole = file.read_bytes()
        damaged = [whole[: min(size, len(whole) - 1)] for size in (0, 4, 300, 60000)]
        if file == data:
            # A byte that is another.
            damaged += [whole[:size] + bytes([whole[size] ^ 0xFF]) + whole[size + 1 :] for size in (0, 100, 5000)]
        for content in damaged:
            file.write_bytes(content)
            with refused(message):
                load(file.parent)
        file.write_bytes(whole)


def test_absent_and_ambiguous_files(tmp_path):
    with refused(r"no TensorFlow checkpoint at .*nowhere"):
        load_official(tmp_path / "nowhere")
    with refused("holds 0 TensorFlow checkpoints"):
        load_official(tmp_path)
    model = filled(AlbertEncoder(small()))
    save_official(model, tmp_path, name="one")
    (tmp_path / "albert_config.json").unlink()
    with refused(r"holds no albert_config.json"):
        load_official(tmp_path)
    save_official(model, tmp_path, name="two")
    with refused("holds 2 TensorFlow checkpoints"):
        load_official(tmp_path)
    for path in (tmp_path / "two", tmp_path / "two.index"):
        assert_same_weights(load_official(path), model)
    with refused(r"no .*model\.safetensors"):
        load_huggingface(tmp_path)
    with refused("keras-hub cannot load the preset"):
        load_keras_hub(tmp_path)


@pytest.mark.parametrize(
    "change", [{"embedding_size": 16, "always_project": True}, {"embedding_size": 16, "sharing": "none"}]
)
def test_a_huggingface_file_needs_no_word_of_its_origin(change, tmp_path):
    config = small(hidden_act="gelu_erf", **change)
    save_huggingface(AlbertEncoder(config), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert load_huggingface(tmp_path).config == config
