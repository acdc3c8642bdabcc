"""What files of other libraries say of a model: each key is followed, without effect, or named in one line."""

import functools
import json

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertRegressor
from albert_tf.checkpoints import formats, save_huggingface
from albert_tf.conversion import convert
from serving.client.tasks import raw_scores
from serving.exportable import ExportOptions, make_exportable
from tests.albert_tf.refusals import refused
from tests.albert_tf.tiny import small

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "query", ":"]
CONFIG = small(vocab_size=len(WORDS), initializer_range=0.3, num_hidden_layers=1)
MEAN = {"pooling_mode_mean_tokens": True}
TORCH = "torch.nn.modules."


def write(folder, files):
    """Writes JSON files by their names; what is no JSON stays a text, and a key with the value ... is taken out."""
    for name, values in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        before = json.loads((folder / name).read_text()) if name == "config.json" else {}
        if isinstance(values, dict):
            values = {key: value for key, value in (before | values).items() if value is not ...}
        (folder / name).write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


# No test changes these, and most look at what lies beside them.
encoder = functools.cache(lambda: AlbertEncoder(CONFIG))
classifier = functools.cache(lambda classes: AlbertClassifier(CONFIG, classes))


def published(folder, model, **files):
    """A folder as transformers writes it."""
    save_huggingface(model, folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return write(folder, {"tokenizer_config.json": {"do_lower_case": True}} | files)


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}


def embedder(folder, *modules, **files):
    """A folder as sentence-transformers writes it: files of the modules behind the transformer by their names."""
    listed = [TRANSFORMER]
    for number, (kind, values) in enumerate(modules, 1):
        listed.append({"path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"})
        files[f"{number}_{kind}/config.json"] = values
    return published(folder, encoder(), **{"modules.json": listed} | files)


def states(loaded, text):
    core = getattr(loaded.model, "encoder", loaded.model)
    return core(loaded.preprocessor()([text]))["sequence_output"].numpy()[0, : len(text.split()) + 2]


POOLED = {
    "cls": lambda rows: rows[0],
    "max": lambda rows: rows.max(0),
    "mean": lambda rows: rows.mean(0),
    "mean_sqrt_len_tokens": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
    "weightedmean": lambda rows: np.average(rows, 0, np.arange(1, len(rows) + 1)),
    "lasttoken": lambda rows: rows[-1],
}


@pytest.mark.parametrize(
    "pooling, names",
    [
        *(({"pooling_mode": name}, [name]) for name in POOLED),
        # Keys of their own have their own order, a list has the one that it is written in.
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ["cls", "mean"]),
        ({"pooling_mode": ["mean", "cls"], "embedding_dimension": 16}, ["mean", "cls"]),
        ({"pooling_mode_lasttoken": True, "word_embedding_dimension": 16}, ["lasttoken"]),
        ({}, ["mean"]),
    ],
)
def test_vectors_are_pooled_as_the_folder_says(tmp_path, pooling, names):
    loaded = albert_tf.load(embedder(tmp_path, ("Pooling", pooling)))
    # Of two lengths, so that one row is padded.
    texts = ["a b c", "d e a h b"]
    expected = [np.concatenate([POOLED[name](states(loaded, text)) for name in names]) for text in texts]
    assert_allclose(loaded.predict(texts), expected, atol=2e-6)


def test_dense_layers_follow_in_training_files_and_exports(tmp_path):
    activations = {"linear.Identity": lambda x: x, "activation.Tanh": np.tanh}
    dense = [
        ("Dense", {"in_features": 16, "out_features": 5, "bias": bias, "activation_function": TORCH + name})
        for name, bias in zip(activations, (True, False))
    ]
    dense[1][1].update(in_features=5, out_features=4)
    folder = embedder(tmp_path / "st", ("Pooling", MEAN), *dense, ("Normalize", {}))
    random = np.random.default_rng(0)
    first = {"linear.weight": random.normal(size=(5, 16)), "linear.bias": random.normal(size=5)}
    second = {"linear.weight": random.normal(size=(4, 5))}
    for name, tensors in (("2_Dense", first), ("3_Dense", second)):
        save_file({key: value.astype("float32") for key, value in tensors.items()}, folder / name / "model.safetensors")
    loaded = albert_tf.load(folder)
    vector = np.tanh(
        (states(loaded, "a b c").mean(0) @ first["linear.weight"].T + first["linear.bias"]) @ second["linear.weight"].T
    )
    expected = [vector / np.linalg.norm(vector)]
    assert_allclose(loaded.predict(["a b c"]), expected, atol=2e-6)
    convert(folder, tmp_path / "model.keras", "keras")
    assert_array_equal(albert_tf.load(tmp_path / "model.keras").predict(["a b c"]), loaded.predict(["a b c"]))
    exported = make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, task=loaded.task))
    answer = exported.signatures()["serving_default"].function(text=np.array([b"a b c", b"d"]))["embedding"]
    assert_allclose(answer, loaded.predict(["a b c", "d"]), atol=2e-6)


NAMES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TOKENIZER = "tokenizer_config.json"


@pytest.mark.parametrize(
    "files, length",
    [
        *(({f"sentence_{name}_config.json": {"max_seq_length": 6}}, 6) for name in NAMES),
        ({TOKENIZER: {"model_max_length": 7}}, 7),
        ({TOKENIZER: {"max_len": 8}}, 8),
        ({"sentence_bert_config.json": {"max_seq_length": None}, TOKENIZER: {"model_max_length": 7}}, 7),
        ({"sentence_bert_config.json": {"max_seq_length": 9}, TOKENIZER: {"model_max_length": 7}}, 9),
        ({"sentence_bert_config.json": {"max_seq_length": 5}, "sentence_xlnet_config.json": {"max_seq_length": 9}}, 5),
        ({TOKENIZER: {"model_max_length": 10**30}}, 32),
    ],
)
def test_rows_are_as_long_as_the_folder_says(tmp_path, files, length):
    loaded = albert_tf.load(embedder(tmp_path, ("Pooling", MEAN), **files))
    assert loaded.preprocessor().max_seq_length == length


def test_the_default_prompt_goes_before_every_text(tmp_path):
    settings = {"prompts": {"query": "query : ", "document": ""}, "default_prompt_name": "query"}
    folder = embedder(tmp_path / "st", ("Pooling", MEAN), **{"config_sentence_transformers.json": settings})
    loaded, plain = albert_tf.load(folder), embedder(tmp_path / "plain", ("Pooling", MEAN))
    for file in ("model.safetensors", "config.json"):
        (plain / file).write_bytes((folder / file).read_bytes())
    expected = albert_tf.load(plain).predict(["query : a b"])
    assert_array_equal(loaded.predict(["a b"]), expected)
    exported = make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, task=loaded.task))
    answer = exported.signatures()["serving_default"].function(text=np.array([b"a b"]))["embedding"]
    assert_allclose(answer, expected, atol=2e-6)
    # A conversion keeps it.
    convert(folder, tmp_path / "keras" / "model.keras", "keras")
    assert_array_equal(albert_tf.load(tmp_path / "keras").predict(["a b"]), expected)
    write(folder, {"config_sentence_transformers.json": settings | {"default_prompt_name": "document"}})
    assert_array_equal(albert_tf.load(folder).predict(["query : a b"]), expected)


def sigmoid(numbers):
    return 1 / (1 + np.exp(-numbers))


regressor = functools.cache(lambda: AlbertRegressor(CONFIG))
SCORES = [
    ({"sbert_ce_default_activation_function": TORCH + "activation.Sigmoid"}, sigmoid),
    ({"sbert_ce_default_activation_function": TORCH + "linear.Identity"}, lambda x: x),
    ({"sentence_transformers": {"activation_fn": TORCH + "activation.Tanh", "version": "4.0"}}, np.tanh),
    ({"sentence_transformers": {"version": "4.0"}}, sigmoid),
    ({"problem_type": "multi_label_classification", "sentence_transformers": ...}, sigmoid),
    ({"problem_type": "regression", "sentence_transformers": ...}, lambda x: x),
    ({"sentence_transformers": ...}, lambda x: x),
]


def scoring(folder, said):
    """The model of a folder that says that of its scores, and the model's logits for a pair."""
    write(published(folder, regressor()), {"config.json": {"sentence_transformers": ..., "problem_type": ...} | said})
    loaded = albert_tf.load(folder)
    return loaded, regressor()(loaded.preprocessor()(["a b c"], ["d"])).numpy()[:, 0]


@pytest.mark.parametrize("said, expected", SCORES)
def test_scores_pass_through_what_the_folder_says(tmp_path, said, expected, caplog):
    loaded, logits = scoring(tmp_path / "folder", said)
    assert_allclose(loaded.predict(["a b c"], ["d"]), expected(logits), atol=1e-6)
    is_said = said.get("sentence_transformers") is not ... or said.get("problem_type") == "multi_label_classification"
    assert ("does not say what its score passes through" in caplog.text) == (not is_said)
    # As it is written again.
    again = albert_tf.load(published(tmp_path / "again", loaded.model))
    assert again.predict(["a b c"], ["d"]) == loaded.predict(["a b c"], ["d"])


@pytest.mark.parametrize("said, expected", SCORES[:3])
def test_scores_pass_through_it_in_exports_too(tmp_path, said, expected):
    loaded, logits = scoring(tmp_path / "folder", said)
    exported = make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, task={"inputs": ["a", "b"]}))
    answer = exported.signatures()["serving_default"].function(first=np.array([b"a b c"]), second=np.array([b"d"]))
    assert_allclose(answer["value"], expected(logits), atol=2e-6)
    # The gateway makes a relevance of it, once.
    assert_allclose(raw_scores(answer), logits, atol=2e-6)


def test_a_score_has_one_name(tmp_path):
    folder = published(tmp_path, AlbertRegressor(CONFIG), **{"config.json": {"id2label": {"0": "x", "1": "y"}}})
    with refused(r"config.json': id2label names 2 classes \(0, 1\)"):
        albert_tf.load(folder)


def test_several_labels_a_text_have_probabilities_of_their_own(tmp_path):
    model = AlbertClassifier(CONFIG, 3, labels="xyz", multi_label=True)
    folder = published(tmp_path, model)
    assert json.loads((folder / "config.json").read_text())["problem_type"] == "multi_label_classification"
    loaded = albert_tf.load(folder)
    (answer,) = loaded.predict(["a b c"])
    shares = sigmoid(model(loaded.preprocessor()(["a b c"])).numpy()[0])
    assert_allclose(list(answer["probabilities"].values()), shares, atol=1e-6)
    assert answer["labels"] == [name for name, share in zip("xyz", shares) if share > 0.5]
    exported = make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, task={"inputs": ["a"]}))
    found = exported.signatures()["serving_default"].function(text=np.array([b"a b c"]))
    assert_allclose(found["probabilities"][0], shares, atol=2e-6)
    loaded.model.save(tmp_path / "model.keras")
    assert albert_tf.load(tmp_path / "model.keras").model.multi_label
    loaded.model.compile()
    assert isinstance(loaded.model.loss, keras.losses.BinaryCrossentropy)
    loaded.model.fit(loaded.preprocessor()(["a", "b"]), np.eye(3)[:2], verbose=0)


@pytest.mark.parametrize(
    "file, values, message",
    [
        ("config.json", {"id2label": {"0": "x", "1": "x"}}, "names several classes x; their numbers are added"),
        ("config.json", {"emb_size": 9, "rope": 1}, "config.json': keys that transformers does not know either are"),
        ("config.json", {"sbert_ce_default_activation_function": TORCH + "activation.Tanh"}, "through tanh there"),
        (TOKENIZER, {"model_max_length": 6}, "tokenizer_config.json': model_max_length 6 is not followed"),
    ],
)
def test_what_is_not_followed_is_warned_of(tmp_path, file, values, message, caplog):
    loaded = albert_tf.load(published(tmp_path, classifier(2), **{file: values}))
    assert message in caplog.text and len(loaded.predict(["a"])[0]["probabilities"]) == 2


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
SETTINGS = "config_sentence_transformers.json"
PROMPT = {"prompts": {"q": "a"}, "default_prompt_name": "q"}


@pytest.mark.parametrize(
    "files, message",
    [
        ({"config.json": {"id2label": {"0": "x", "1": "y"}}}, r"config.json': id2label names 2 classes \(0, 1\)"),
        ({"config.json": {"id2label": ..., "num_labels": 4}}, "num_labels is 4, and the weights have 3 classes"),
        ({"config.json": {"problem_type": "regression"}}, "problem_type 'regression' of 3 numbers is not offered"),
        ({"config.json": {"quantization_config": {"bits": 4}}}, r"config.json': quantization_config \{'bits': 4\} is"),
        ({"config.json": {"auto_map": {"AutoModel": "x.X"}, "rope": 1}}, "key 'rope' of a model with code"),
        ({"config.json": {"hidden_sizes": 1}}, "unknown configuration key 'hidden_sizes'; did you mean 'hidden_size'"),
        ({"config.json": {"model_type": "distilbert", "hidden_size": ...}}, "config.json': not supported: distilbert"),
        ({"config.json": {"model_type": ..., "hidden_size": ..., "architectures": ["X"]}}, "; it describes a X"),
        ({"config.json": {"sbert_ce_default_activation_function": "x.Y"}}, "activation x.Y of its scores"),
        ({"model.safetensors": POINTER}, "model.safetensors' is a Git LFS pointer"),
        ({"tokenizer_config.json": POINTER}, "tokenizer_config.json' is a Git LFS pointer"),
        ({"modules.json": [{"type": "x.Transformer", "path": ""}], SETTINGS: PROMPT}, "followed of embedders alone"),
        ({"adapter_config.json": {}}, r"holds a PEFT adapter \(adapter_config.json\); merge it"),
    ],
)
def test_what_would_be_another_answer_is_refused_by_name(tmp_path, files, message):
    folder = published(tmp_path, classifier(3), **files)
    with refused(message):
        albert_tf.load(folder)


@pytest.mark.parametrize(
    "modules, files, message",
    [
        ([("LSTM", {})], {}, r"modules.json': the module sentence_transformers.models.LSTM is not followed here"),
        ([("Pooling", MEAN), ("Normalize", {}), ("Dense", {"out_features": 4})], {}, "models.Dense is not followed"),
        ([("Normalize", {})], {}, "has no Pooling; to load the encoder alone"),
        (
            [],
            {"modules.json": [TRANSFORMER, POOLING]},
            "no '.*1_Pooling/config.json', which says how",
        ),
        ([("Pooling", "[]")], {}, "1_Pooling/config.json' holds no JSON object"),
        ([("Pooling", MEAN)], {"modules.json": {"path": ""}}, "is no list of sentence-transformers' modules"),
        ([("Pooling", MEAN)], {"modules.json": [{}]}, "is no list of sentence-transformers' modules"),
        ([("Pooling", MEAN)], {"tokenizer_config.json": "[]"}, "tokenizer_config.json' holds no JSON object"),
        (
            [("Pooling", MEAN)],
            {"added_tokens.json": '{"x": "y"}'},
            "is not as transformers and the `tokenizers` library",
        ),
        ([("Pooling", MEAN)], {"task.json": '"x"'}, "task.json' holds no JSON object"),
        ([("Pooling", MEAN)], {"config.json": {"model_type": ["bert"]}}, "model_type must be a text"),
        ([("Pooling", {"pooling_mode": "median"})], {}, "1_Pooling/config.json': pooling 'median' is not known"),
        ([("Pooling", MEAN | {"new": 1})], {}, "1_Pooling/config.json': the key 'new' is not known of a Pooling"),
        ([("Pooling", MEAN)], {"sentence_bert_config.json": {"query_length": 9}}, "query_length 9 is not"),
        ([("Pooling", MEAN)], {SETTINGS: {"model_type": "SparseEncoder"}}, "model_type 'SparseEncoder'"),
        ([("Pooling", MEAN)], {SETTINGS: {"default_prompt_name": "x"}}, "'x' is none of its prompts"),
        (
            [("Pooling", MEAN | {"include_prompt": False})],
            {SETTINGS: PROMPT},
            "1_Pooling/config.json': include_prompt false",
        ),
        (
            [("Pooling", MEAN), ("Dense", {"out_features": 4, "activation_function": "x.Y"})],
            {},
            "activation_function x.Y",
        ),
        ([("Pooling", MEAN), ("Dense", {"out_features": 4, "use_residual": True})], {}, "use_residual True"),
    ],
)
def test_modules_that_make_another_vector_are_refused_by_name(tmp_path, modules, files, message):
    with refused(message):
        albert_tf.load(embedder(tmp_path, *modules, **files))


@pytest.mark.parametrize(
    "name, message",
    [
        ("model.fp16.safetensors", "is a variant of the weights, in another precision; give that file itself"),
        ("tf_model.h5", "is transformers' format for TensorFlow"),
        ("saved_model.pb", "is an export, which only a server reads; give the folder that it was exported from"),
        ("onnx/model.onnx", "is an ONNX graph"),
    ],
)
def test_other_files_of_weights_are_called_what_they_are(tmp_path, name, message):
    folder = published(tmp_path, encoder())
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / name)
    with refused(message):
        albert_tf.load(folder)
    if name.endswith("safetensors"):
        assert type(albert_tf.load(folder / name).model) is AlbertEncoder


@pytest.mark.parametrize("wrapper", ["model.", "module.", "0.auto_model."])
def test_names_of_a_module_that_held_the_model_are_taken_off(tmp_path, wrapper):
    folder = published(tmp_path, classifier(2))
    before = albert_tf.load(folder).predict(["a b"])
    tensors = {wrapper + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    assert albert_tf.load(folder).predict(["a b"]) == before


def test_words_of_a_tied_head_may_have_the_name_of_its_decoder(tmp_path):
    config = CONFIG.replace(sharing="none", embedding_size=16)
    folder = published(tmp_path, albert_tf.AlbertPretrainer(config, pair_task=None))
    before = albert_tf.load(folder).predict(["a [MASK]"])
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    save_file(tensors, folder / "model.safetensors")
    assert albert_tf.load(folder).predict(["a [MASK]"]) == before


@pytest.mark.parametrize("kind", ["albert", "bert"])
def test_what_a_file_of_transformers_leaves_out_is_its_default(kind):
    sizes = dict(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    config = AlbertConfig.from_dict({"model_type": kind, **sizes})
    expected = {"albert": ("gelu", 0.0), "bert": ("gelu_erf", 0.1)}
    assert (config.hidden_act, config.hidden_dropout_prob) == expected[kind]


def test_the_head_of_a_keras_hub_classifier_is_read(tmp_path, caplog):
    import keras_hub

    sizes = dict(vocabulary_size=40, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=24)
    backbone = keras_hub.models.AlbertBackbone(**sizes, embedding_dim=8, max_sequence_length=32)
    classifier = keras_hub.models.AlbertTextClassifier(backbone, num_classes=3, preprocessor=None)
    classifier.output_dense.bias.assign([1.0, -2.0, 0.5])
    classifier.save_to_preset(str(tmp_path / "classifier"))
    ids, mask = np.array([[2, 7, 9, 3, 0]]), np.array([[1, 1, 1, 1, 0]])
    expected = classifier({"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids})
    model = albert_tf.load(tmp_path / "classifier").model
    assert_allclose(model({"input_ids": ids, "input_mask": mask}), expected, atol=2e-6)
    keras_hub.models.AlbertMaskedLM(backbone, preprocessor=None).save_to_preset(str(tmp_path / "words"))
    assert type(albert_tf.load(tmp_path / "words").model) is AlbertEncoder
    assert "the head of the AlbertMaskedLM" in caplog.text


def test_a_file_that_nothing_reads_is_named(tmp_path, caplog):
    files = {"extra_weights.bin": "", "README.md": "", "trainer_state.json": {}, "onnx_settings.json": {}}
    albert_tf.load(published(tmp_path, encoder(), **files))
    assert caplog.messages == [f"'{tmp_path}' holds files that are not read: extra_weights.bin, onnx_settings.json"]


def test_scores_without_a_form_elsewhere_are_refused_or_warned_of(tmp_path, caplog):
    with refused("activation 'softplus' has no form there"):
        save_huggingface(AlbertRegressor(CONFIG, activation="softplus"), tmp_path / "huggingface")
    formats.save(AlbertClassifier(CONFIG, 2, multi_label=True), tmp_path / "official", "official")
    assert "'multi_label': True}) has no form there" in caplog.text
