"""What files of other libraries say of a model: each key is followed, without effect, or named in one line."""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file
from scipy.special import expit

import albert_tf
from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertRegressor
from albert_tf.checkpoints import formats, save_huggingface
from albert_tf.checkpoints.resizing import keep_pieces
from albert_tf.loading.load import convert
from serving.client.tasks import raw_scores
from serving.exportable import ExportOptions, make_exportable
from tests.albert_tf.tiny import small, table
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "query", ":"]
CONFIG = small(vocab_size=len(WORDS), initializer_range=0.3, num_hidden_layers=1)
MEAN = {"pooling_mode_mean_tokens": True}
SETTINGS = "config_sentence_transformers.json"


def write(folder, files):
    """Writes JSON files by their names; what is no JSON stays a text, and a key with the value "..." is taken out."""
    for name, values in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        before = json.loads((folder / name).read_text()) if name == "config.json" else {}
        if isinstance(values, dict):
            values = {key: value for key, value in (before | values).items() if value != "..."}
        (folder / name).write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


# No test changes these, and most look at what lies beside them.
encoder = functools.cache(lambda: AlbertEncoder(CONFIG))
classifier = functools.cache(lambda classes: AlbertClassifier(CONFIG, classes))
regressor = functools.cache(lambda: AlbertRegressor(CONFIG))
# Its table has rows without a piece, as those of many published models.
words = functools.cache(lambda: AlbertPretrainer(CONFIG.replace(vocab_size=len(WORDS) + 3), pair_task=None))


@functools.cache
def saved(model):
    """The files of a model as transformers writes them, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        save_huggingface(model, folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def published(folder, model, **files):
    """A folder as transformers writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in saved(model).items():
        (folder / name).write_bytes(content)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return write(folder, {"tokenizer_config.json": {"do_lower_case": True}} | files)


def embedder(folder, *modules, model=None, **files):
    """A folder as sentence-transformers writes it: files of the modules behind the transformer by their names."""
    listed = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, values) in enumerate(modules, 1):
        listed.append({"path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"})
        files[f"{number}_{kind}/config.json"] = values
    return published(folder, model or encoder(), **{"modules.json": listed} | files)


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


def served(loaded, inputs=(), **texts):
    """What an export of the model answers to a text, or to a pair."""
    task = loaded.task | ({"inputs": inputs} if inputs else {})
    exportable = make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, task=task))
    features = {name: np.array([text.encode()]) for name, text in texts.items()}
    return exportable.signatures()["serving_default"].function(**features)


# Keys of their own have their own order, a list has the one that it is written in.
POOLINGS = table("""
    {"pooling_mode": "cls"}                                              | cls
    {"pooling_mode": "max"}                                              | max
    {"pooling_mode": "mean_sqrt_len_tokens"}                             | mean_sqrt_len_tokens
    {"pooling_mode": "weightedmean"}                                     | weightedmean
    {"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}   | cls mean
    {"pooling_mode": ["mean", "cls"], "embedding_dimension": 16}         | mean cls
    {"pooling_mode_lasttoken": true, "word_embedding_dimension": 16}     | lasttoken
    {}                                                                   | mean
""")


@pytest.mark.parametrize("pooling, names", POOLINGS)
def test_vectors_are_pooled_as_the_folder_says(tmp_path, pooling, names):
    loaded = albert_tf.load(embedder(tmp_path, ("Pooling", json.loads(pooling))))
    # Of two lengths, so that one row is padded.
    texts = ["a b c", "d e a h b"]
    expected = [np.concatenate([POOLED[name](states(loaded, text)) for name in names.split()]) for text in texts]
    assert_allclose(loaded.predict(texts), expected, atol=2e-6)


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_words_are_weighed_as_a_splade_folder_says(tmp_path, strategy, activation):
    pooling = {"pooling_strategy": strategy, "activation_function": activation, "embedding_dimension": None}
    files = {
        "config_sentence_transformers.json": {"model_type": "SparseEncoder", "similarity_fn_name": None},
        "sentence_bert_config.json": {"transformer_task": "fill-mask"},
    }
    loaded = albert_tf.load(embedder(tmp_path / "st", ("SpladePooling", pooling), model=words(), **files))
    texts = ["a b c", "d e a h b"]
    rows = [words()(loaded.preprocessor()([text])) for text in texts]
    logits = [row["masked_lm_logits"].numpy()[0, : len(text.split()) + 2] for row, text in zip(rows, texts)]
    weights = [np.log1p(np.maximum(row, 0)) for row in logits]
    weights = weights if activation == "relu" else map(np.log1p, weights)
    expected = [getattr(row, strategy)(axis=0) for row in weights]
    assert np.count_nonzero(expected) > 10
    assert_allclose(loaded.predict(texts), expected, atol=5e-6)
    assert loaded.similarity(*texts) == pytest.approx(float(np.dot(*expected)), rel=1e-5)
    loaded.save(tmp_path / "saved")
    assert_allclose(albert_tf.load(tmp_path / "saved").predict(texts), expected, atol=5e-6)
    assert_allclose(served(loaded, text=texts[1])["embedding"][0], expected[1], atol=5e-6)


TABLE = np.linspace(0.5, 2, len(WORDS) + 3, dtype="float32")
ROUTER = {
    "types": {"query_0_SparseStaticEmbedding": "sentence_transformers.sparse_encoder.modules.SparseStaticEmbedding"},
    "structure": {"query": ["query_0_SparseStaticEmbedding"], "document": ["", "document_1_SpladePooling"]},
    "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
}
ROUTER["types"] |= {"": "models.MLMTransformer", "document_1_SpladePooling": "models.SpladePooling"}


def routed(folder, **files):
    """A folder of sentence-transformers whose queries are weighed by a table."""
    written = {
        "modules.json": [{"path": "", "type": "sentence_transformers.base.modules.router.Router"}],
        "config_sentence_transformers.json": {"model_type": "SparseEncoder", "prompts": {"query": "query : "}},
        "router_config.json": ROUTER,
        "document_1_SpladePooling/config.json": {"pooling_strategy": "sum"},
        "query_0_SparseStaticEmbedding/vocab.txt": "\n".join(WORDS) + "\n",
        "query_0_SparseStaticEmbedding/tokenizer_config.json": {"do_lower_case": True, "model_max_length": 6},
        "query_0_SparseStaticEmbedding/config.json": {"frozen": True},
    }
    folder = published(folder, words(), **written | files)
    save_file({"weight": TABLE}, folder / "query_0_SparseStaticEmbedding" / "model.safetensors")
    return folder


def test_a_table_weighs_the_queries_of_a_splade_model_with_a_router(tmp_path):
    loaded = albert_tf.load(routed(tmp_path / "st"))
    expected = np.zeros((2, len(TABLE)), "float32")
    # After "query :", 4 of 6 tokens are left, each weighs once, and special tokens nothing.
    for row, tokens in enumerate(["query : a b a [UNK]", "query :"]):
        numbers = [WORDS.index(token) for token in tokens.split()]
        expected[row, numbers] = TABLE[numbers]
    queries = loaded.encode_query(["A b a z h", ""], normalize=False)
    assert_array_equal(queries, expected)
    documents = loaded.encode_document(["a b", "c"], normalize=False)
    assert_array_equal(documents, loaded.predict(["a b", "c"]))
    plain = [{"path": "", "type": "models.MLMTransformer"}, {"path": "1", "type": "models.SpladePooling"}]
    write(tmp_path / "st", {"modules.json": plain, "1/config.json": {"pooling_strategy": "sum"}})
    assert_array_equal(documents, albert_tf.load(tmp_path / "st").predict(["a b", "c"]))
    assert_allclose(loaded.similarity(queries, documents), queries @ documents.T, rtol=1e-6)
    hits = loaded.index(["a b", "c"]).search("A b a z h", top=2)
    assert [hit.score for hit in hits] == pytest.approx(sorted(queries[0] @ documents.T, reverse=True))
    again = albert_tf.load(loaded.save(tmp_path / "saved"))
    assert_array_equal(again.encode_query(["A b a z h", ""], normalize=False), expected)
    with refused("exports have no table for queries"):
        make_exportable(again.model, ExportOptions(32, tokenizer=again.tokenizer))
    assert_array_equal(keep_pieces(again.model, [0, 7, 5]).query_weights, TABLE[[0, 7, 5]])


ROUTERS = table(r"""
    {"router_config.json": {"parameters": {"default_route": "query"}}} | of Routers, those alone are read that have
    {"router_config.json": {"parameters": {"default_route": "document", "route_mappings": {"(None, 'text')": "query"}}}} | and no route_mappings
    {"router_config.json": {"parameters": {"default_route": "document", "new": 1}}} | of Routers, those alone are read
    {"router_config.json": {"structure": {"query": ["", "document_1_SpladePooling"], "document": [""]}}} | of Routers, those
    {"router_config.json": {"types": []}} | of Routers, those alone are read
    {"router_config.json": "[]"} | holds no JSON object
    {"modules.json": [{"path": "../x", "type": "models.Router"}]} | is no place in its folder
    {"query_0_SparseStaticEmbedding/config.json": {"path": "idf.json"}} | key 'path' is not known of a SparseStaticEmb
    {"query_0_SparseStaticEmbedding/tokenizer_config.json": {"do_lower_case": false}} | must have the tokenizer of
    {"document_1_SpladePooling/config.json": {"pooling_strategy": "min"}} | pooling_strategy 'min' with
""")  # noqa: E501


@pytest.mark.parametrize("files, message", ROUTERS)
def test_other_routers_are_refused_by_name(tmp_path, files, message):
    files = json.loads(files)
    if isinstance(changed := files.get("router_config.json"), dict):
        files["router_config.json"] = ROUTER | changed
    with refused(message):
        albert_tf.load(routed(tmp_path, **files))


def test_a_sparse_vector_is_not_cut(tmp_path):
    files = {"sentence_bert_config.json": {"transformer_task": "fill-mask"}}
    loaded = albert_tf.load(embedder(tmp_path, ("SpladePooling", {}), model=words(), **files))
    with refused("--dimensions is of embeddings"):
        make_exportable(loaded.model, ExportOptions(32, tokenizer=loaded.tokenizer, dimensions=4))
    with refused("truncate_dim would keep the first words of the vocabulary alone"):
        albert_tf.load(write(tmp_path, {SETTINGS: {"truncate_dim": 4}}))


def test_an_encoder_is_read_from_a_folder_with_a_head_for_words(tmp_path):
    loaded = albert_tf.load(embedder(tmp_path, ("Pooling", {"pooling_mode": "cls"}), ("Normalize", {}), model=words()))
    assert loaded.model.pooling == "cls" and loaded.model.normalize


def test_dense_layers_follow_in_training_files_and_exports(tmp_path):
    random = np.random.default_rng(0)
    first, second, bias = (random.normal(size=size).astype("float32") for size in ((5, 16), (4, 5), 5))
    dense = [
        ("Dense", {"out_features": 5, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"}),
        ("Dense", {"out_features": 4, "bias": False, "activation_function": "torch.nn.modules.activation.Tanh"}),
    ]
    folder = embedder(tmp_path / "st", ("Pooling", MEAN), *dense, ("Normalize", {}))
    save_file({"linear.weight": first, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    save_file({"linear.weight": second}, folder / "3_Dense" / "model.safetensors")
    loaded = albert_tf.load(folder)
    vector = np.tanh((states(loaded, "a b c").mean(0) @ first.T + bias) @ second.T)
    found = loaded.predict(["a b c"])
    assert_allclose(found, [vector / np.linalg.norm(vector)], atol=2e-6)
    convert(folder, tmp_path / "model.keras", "keras")
    assert_array_equal(albert_tf.load(tmp_path / "model.keras").predict(["a b c"]), found)
    assert_allclose(served(loaded, text="a b c")["embedding"], found, atol=2e-6)


LENGTHS = table("""
    {"sentence_bert_config.json": {"max_seq_length": 6}}        | 6
    {"sentence_roberta_config.json": {"max_seq_length": 6}}     | 6
    {"sentence_distilbert_config.json": {"max_seq_length": 6}}  | 6
    {"sentence_camembert_config.json": {"max_seq_length": 6}}   | 6
    {"sentence_albert_config.json": {"max_seq_length": 6}}      | 6
    {"sentence_xlm-roberta_config.json": {"max_seq_length": 6}} | 6
    {"sentence_xlnet_config.json": {"max_seq_length": 6}}       | 6
    {"tokenizer_config.json": {"model_max_length": 7}}          | 7
    {"tokenizer_config.json": {"max_len": 8}}                   | 8
    {"sentence_bert_config.json": {"max_seq_length": null}, "tokenizer_config.json": {"model_max_length": 7}}    | 7
    {"sentence_bert_config.json": {"max_seq_length": 9}, "tokenizer_config.json": {"model_max_length": 7}}       | 9
    {"sentence_bert_config.json": {"max_seq_length": 5}, "sentence_xlnet_config.json": {"max_seq_length": 9}}    | 5
    {"tokenizer_config.json": {"model_max_length": 1000000000000000000000000000000}}                             | 32
""")


@pytest.mark.parametrize("files, length", LENGTHS)
def test_rows_are_as_long_as_the_folder_says(tmp_path, files, length):
    loaded = albert_tf.load(embedder(tmp_path, ("Pooling", MEAN), **json.loads(files)))
    assert loaded.preprocessor().max_seq_length == int(length)


def test_a_vector_is_cut_where_the_folder_says_and_a_text_too(tmp_path):
    files = {SETTINGS: {"truncate_dim": 4}, "sentence_bert_config.json": {"max_seq_length": 5}}
    folder = embedder(tmp_path / "st", ("Pooling", MEAN), **files)
    loaded, whole = (albert_tf.load(path) for path in (folder, embedder(tmp_path / "whole", ("Pooling", MEAN))))
    expected = whole.predict(["a b c"])[:, :4]
    convert(folder, tmp_path / "model.keras", "keras")
    for one in (loaded, albert_tf.load(tmp_path / "model.keras")):
        assert_allclose(one.predict(["a b c d e"]), expected, atol=2e-6)
    assert_allclose(served(loaded, text="a b c")["embedding"], expected, atol=2e-6)
    write(folder, {SETTINGS: {"truncate_dim": 0}})
    with refused("truncate_dim must be a number"):
        albert_tf.load(folder)


def test_the_default_prompt_goes_before_every_text(tmp_path):
    settings = {"prompts": {"query": "query : ", "document": ""}, "default_prompt_name": "query"}
    folder = embedder(tmp_path / "st", ("Pooling", MEAN), **{SETTINGS: settings})
    loaded, plain = (albert_tf.load(path) for path in (folder, embedder(tmp_path / "plain", ("Pooling", MEAN))))
    expected = plain.predict(["query : a b"])
    assert_array_equal(loaded.predict(["a b"]), expected)
    assert_allclose(served(loaded, text="a b")["embedding"], expected, atol=2e-6)
    # A conversion keeps it.
    convert(folder, tmp_path / "keras" / "model.keras", "keras")
    assert_array_equal(albert_tf.load(tmp_path / "keras").predict(["a b"]), expected)
    write(folder, {SETTINGS: settings | {"default_prompt_name": "document"}})
    assert_array_equal(albert_tf.load(folder).predict(["query : a b"]), expected)
    # Neither queries nor documents get another's.
    write(folder, {SETTINGS: {"prompts": {"task": "c : "}, "default_prompt_name": "task"}})
    assert_array_equal(albert_tf.load(folder).encode_query(["query : a b"], normalize=False), expected)


IDENTITY = np.positive
SCORES = [
    ('{"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}', expit),
    ('{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}', IDENTITY),
    ('{"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh", "version": "4.0"}}', np.tanh),
    ('{"sentence_transformers": {"version": "4.0"}}', expit),
    ('{"problem_type": "multi_label_classification"}', expit),
    ('{"problem_type": "regression"}', IDENTITY),
    ("{}", IDENTITY),
]


@pytest.mark.parametrize("said, expected", SCORES)
def test_scores_pass_through_what_the_folder_says(tmp_path, said, expected, caplog):
    values = {"sentence_transformers": "...", "problem_type": "..."} | json.loads(said)
    loaded = albert_tf.load(write(published(tmp_path / "folder", regressor()), {"config.json": values}))
    logits = regressor()(loaded.preprocessor()(["a b c"], ["d"])).numpy()[:, 0]
    assert_allclose(loaded.predict(["a b c"], ["d"]), expected(logits), atol=1e-6)
    is_said = said not in ('{"problem_type": "regression"}', "{}")
    assert ("does not say what its score passes through" in caplog.text) == (not is_said)
    # As it is written again.
    again = albert_tf.load(published(tmp_path / "again", loaded.model))
    assert again.predict(["a b c"], ["d"]) == loaded.predict(["a b c"], ["d"])
    if "activation" in said:
        answer = served(loaded, ["a", "b"], first="a b c", second="d")
        assert_allclose(answer["value"], expected(logits), atol=2e-6)
        # The gateway makes a relevance of it, once.
        assert_allclose(raw_scores(answer), logits, atol=2e-6)


def test_several_labels_a_text_have_probabilities_of_their_own(tmp_path):
    model = AlbertClassifier(CONFIG, 3, labels="xyz", multi_label=True)
    folder = published(tmp_path, model)
    assert json.loads((folder / "config.json").read_text())["problem_type"] == "multi_label_classification"
    loaded = albert_tf.load(folder)
    (answer,) = loaded.predict(["a b c"])
    shares = expit(model(loaded.preprocessor()(["a b c"])).numpy()[0])
    assert_allclose(list(answer["probabilities"].values()), shares, atol=1e-6)
    assert answer["labels"] == [name for name, share in zip("xyz", shares) if share > 0.5]
    assert_allclose(served(loaded, ["a"], text="a b c")["probabilities"][0], shares, atol=2e-6)


WARNED = table("""
    config.json | {"architectures": "..."}              | names no architectures; the head is read as AlbertForSeque
    config.json | {"id2label": {"0": "x", "1": "x"}}    | names several classes x; their numbers are added
    config.json | {"emb_size": 9, "rope": 1}            | config.json': keys that transformers does not know either are
    config.json | {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"} | through tanh there
    tokenizer_config.json | {"model_max_length": 6}     | tokenizer_config.json': model_max_length 6 is not followed
""")


@pytest.mark.parametrize("file, values, message", WARNED)
def test_what_is_not_followed_is_warned_of(tmp_path, file, values, message, caplog):
    loaded = albert_tf.load(published(tmp_path, classifier(2), **{file: json.loads(values)}))
    assert message in caplog.text and len(loaded.predict(["a"])[0]["probabilities"]) == 2


# Files of a classifier of three classes, or of a regressor.
REFUSED = table(r"""
    {"config.json": {"id2label": {"0": "x", "1": "y"}}}                 | id2label names 2 classes \(0, 1\)
    {"config.json": {"id2label": "...", "num_labels": 4}}               | num_labels is 4, and the weights have 3 classes
    {"config.json": {"problem_type": "regression"}}                     | problem_type 'regression' of 3 numbers is not
    {"config.json": {"quantization_config": {"bits": 4}}}               | config.json': quantization_config {'bits': 4} is
    {"config.json": {"auto_map": {"AutoModel": "x.X"}, "rope": 1}}      | key 'rope' of a model with code
    {"config.json": {"hidden_sizes": 1}}                                | unknown configuration key 'hidden_sizes'; did you
    {"config.json": {"model_type": "funnel", "hidden_size": "..."}} | model_type 'funnel' is not supported
    {"config.json": {"model_type": "model2vec", "architectures": ["StaticModel"]}} | model_type 'model2vec'
    {"config.json": {"model_type": "...", "hidden_size": "...", "architectures": ["X"]}} | ; it describes a X
    {"config.json": {"sbert_ce_default_activation_function": "x.Y"}}    | the activation x.Y is not known
    {"model.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"} | model.safetensors' is a Git
    {"tokenizer_config.json": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"} | json' is a Git LFS po
    {"modules.json": [{"type": "x.Transformer", "path": ""}], "config_sentence_transformers.json": {"prompts": {"q": "a"}, "default_prompt_name": "q"}} | followed of embedders alone
    {"adapter_config.json": {}}                                         | holds a PEFT adapter \(adapter_config.json\); merge
""")  # noqa: E501


@pytest.mark.parametrize("files, message", REFUSED)
def test_what_would_be_another_answer_is_refused_by_name(tmp_path, files, message):
    folder = published(tmp_path, classifier(3), **json.loads(files))
    with refused(message):
        albert_tf.load(folder)
    if "id2label names" in message:
        with refused(message):
            albert_tf.load(published(tmp_path, regressor(), **json.loads(files)))


# Modules behind the transformer, other files, and the error.
MODULES = table(r"""
    [["LSTM", {}]]          | {} | modules.json': the module sentence_transformers.models.LSTM is not followed here
    [["Pooling", {}], ["Normalize", {}], ["Dense", {"out_features": 4}]] | {} | models.Dense is not followed
    [["Normalize", {}]]     | {} | has no Pooling; to load the encoder alone
    []                  | {"modules.json": [{"path": "", "type": "sentence_transformers.sentence_transformer.modules.StaticEmbedding"}]} | begins with a sentence_transformers.*StaticEmbedding; only transformers are read
    [["Pooling", "[]"]]     | {} | 1_Pooling/config.json' holds no JSON object
    [["Pooling", {"pooling_mode": "median"}]] | {} | 1_Pooling/config.json': pooling 'median' is not known
    [["Pooling", {"new": 1}]] | {} | 1_Pooling/config.json': the key 'new' is not known of a Pooling
    [["Pooling", {}], ["Dense", {"out_features": 4, "activation_function": "x.Y"}]] | {} | the activation x.Y
    [["Pooling", {}], ["Dense", {"out_features": 4, "use_residual": true}]] | {} | use_residual True
    []                  | {"modules.json": [{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]} | no '.*1_Pooling/config.json', which says how
    [["Pooling", {}]]   | {"modules.json": {"path": ""}}             | is no list of sentence-transformers' modules
    [["Pooling", {}]]   | {"modules.json": [{}]}                     | is no list of sentence-transformers' modules
    [["Pooling", {}]]   | {"tokenizer_config.json": "[]"}            | tokenizer_config.json' holds no JSON object
    [["Pooling", {}]]   | {"added_tokens.json": "{\"x\": \"y\"}"}  | is not as transformers and the `tokenizers` library
    [["Pooling", {}]]   | {"task.json": "\"x\""}                   | task.json' holds no JSON object
    [["Pooling", {}]]   | {"config.json": {"model_type": ["bert"]}}  | model_type \['bert'\] is not
    [["Pooling", {}]]   | {"sentence_bert_config.json": {"query_length": 9}} | query_length 9 is not
    [["Pooling", {}]]   | {"config_sentence_transformers.json": {"model_type": "SparseEncoder"}} | are followed with one SpladePooling alone
    [["SpladePooling", {}]] | {} | are followed with one SpladePooling alone, and that one with them
    [["Pooling", {}]]   | {"sentence_bert_config.json": {"transformer_task": "fill-mask"}} | are followed with one SpladePooling alone
    [["SpladePooling", {}]] | {"sentence_bert_config.json": {"transformer_task": "fill-mask"}} | has a SpladePooling, and the model no head for masked words
    [["Pooling", {}]]   | {"config_sentence_transformers.json": {"default_prompt_name": "x"}} | 'x' is none of its prompts
    [["Pooling", {"include_prompt": false}]] | {"config_sentence_transformers.json": {"prompts": {"q": "a"}, "default_prompt_name": "q"}} | 1_Pooling/config.json': include_prompt false
""")  # noqa: E501


@pytest.mark.parametrize("modules, files, message", MODULES)
def test_modules_that_make_another_vector_are_refused_by_name(tmp_path, modules, files, message):
    with refused(message):
        albert_tf.load(embedder(tmp_path, *json.loads(modules), **json.loads(files)))


OTHER_WEIGHTS = table("""
    model.fp16.safetensors | is a variant of the weights, in another precision; give that file itself
    tf_model.h5            | is transformers' format for TensorFlow
    saved_model.pb         | is an export, which only a server reads; give the folder that it was exported from
    onnx/model.onnx        | is an ONNX graph
""")


@pytest.mark.parametrize("name, message", OTHER_WEIGHTS)
def test_other_files_of_weights_are_called_what_they_are(tmp_path, name, message):
    folder = published(tmp_path, encoder())
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / name)
    with refused(message):
        albert_tf.load(folder)
    if name.endswith("safetensors"):
        assert type(albert_tf.load(folder / name).model) is AlbertEncoder


def rewrite(folder, change):
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")


@pytest.mark.parametrize("wrapper", ["model.", "module.", "0.auto_model."])
def test_names_of_a_module_that_held_the_model_are_taken_off(tmp_path, wrapper):
    folder = published(tmp_path, classifier(2))
    before = albert_tf.load(folder).predict(["a b"])
    rewrite(folder, lambda tensors: {wrapper + name: tensor for name, tensor in tensors.items()})
    assert albert_tf.load(folder).predict(["a b"]) == before


def test_a_file_that_nothing_reads_is_named(tmp_path, caplog):
    files = {"extra_weights.bin": "", "README.md": "", "trainer_state.json": {}, "onnx_settings.json": {}}
    albert_tf.load(published(tmp_path, encoder(), **files))
    assert caplog.messages == [f"'{tmp_path}' holds files that are not read: extra_weights.bin, onnx_settings.json"]


def test_scores_without_a_form_elsewhere_are_refused_or_warned_of(tmp_path, caplog):
    with refused("activation 'softplus' has no form there"):
        save_huggingface(AlbertRegressor(CONFIG, activation="softplus"), tmp_path / "huggingface")
    formats.save(AlbertClassifier(CONFIG, 2, multi_label=True), tmp_path / "official", "official")
    assert "'multi_label': True}) has no form there" in caplog.text
