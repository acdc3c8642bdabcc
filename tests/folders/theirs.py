"""Writes model folders by transformers and sentence-transformers, and what these libraries answer from them.

    python theirs.py OUTPUT SEED COUNT

Every folder is a draw from a table of keys and values, as users have them in their files. It runs where PyTorch is and
TensorFlow need not be. `OUTPUT/NUMBER` is a folder, `OUTPUT/NUMBER.json` its draw and the answers; the number of a draw
that is done is a line of the output.
"""

import json
import random
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from texts import SECONDS, TEXTS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# MPNet's vocabulary is BERT's, whose special pieces have no role in it, between these and <mask>.
SPECIAL_OF_MPNET = ["<s>", "<pad>", "</s>", "<unk>", *SPECIAL]
WORDS = "a an the good bad film book dog runs Paris paris lives in and is not café cafe query passage : . , ! 2 ##s ##0"
PROMPTS = {"query": "query : ", "passage": "passage : "}
ACTIVATIONS = {
    name: f"torch.nn.modules.{name}" for name in ("activation.Sigmoid", "linear.Identity", "activation.Tanh")
}
# Of poolings, with the ends of the keys that older versions wrote.
MODES = {
    "cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"
}  # fmt: skip
NAMES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
MISSING = "missing"
EMBEDDERS = ("embedder", "sparse", "router")
EXACT = {"dtype": torch.float32}
# What is drawn: values of keys by where they are written.
TABLE = {
    "kind": ("embedder", "embedder", "embedder", "cross_encoder", "classifier", "tagger", "sparse", "router"),
    "model_type": ("bert", "bert", "albert", "mpnet"),
    "hidden_act": ("gelu", "gelu_new", "relu", "gelu_pytorch_tanh", "silu", MISSING),
    "layer_norm_eps": (1e-12, 1e-5, 0.1, MISSING),
    "groups": (1, 2),
    "extra": ({}, {"emb_size": 9}, {"adapters": {}}, {"model_name": "x"}, {"rope_theta": 3.0}, {"num_labels": 2}),
    "precision": ("float32", "float32", "float16", "bfloat16"),
    "shards": (False, False, True),
    "wrapper": ("", "", "model.", "module."),
    "labels": (1, 2, 3),
    "names": (MISSING, ("x", "y", "z"), ("x", "x", "y"), ("x", "y", "z", "w")),
    "problem_type": (MISSING, None, "multi_label_classification", "single_label_classification", "regression"),
    "activation": (MISSING, *ACTIVATIONS.values()),
    "activation_key": ("sbert_ce_default_activation_function", "sentence_transformers", "settings"),
    "settings_file": NAMES,
    "max_seq_length": (MISSING, None, 7, 9, 200),
    "model_max_length": (MISSING, 6, 512, 10**30),
    "st_lower": (MISSING, False, True),
    "lower": (True, True, False, MISSING),
    "strip_accents": (MISSING, None, True, False),
    "tokenizer_json": (True, False),
    "pooling": (*[(mode,) for mode in MODES], ("mean",), ("mean", "cls"), ("cls", "max", "mean")),
    "pooling_form": ("booleans", "name"),
    "include_prompt": (MISSING, True, False),
    "default_prompt_name": (MISSING, None, "query", "passage"),
    "dense": (None, None, ("activation.Tanh", True), ("linear.Identity", False), ("activation.Sigmoid", True)),
    "normalize": (True, False),
    "splade": (("max", "relu"), ("sum", "relu"), ("max", "log1p_relu")),
}


def draw(random_numbers):
    return {name: random_numbers.choice(values) for name, values in TABLE.items()}


def write(folder, chosen, seed):
    """Writes the folder of a draw; returns nothing. Raises what the libraries raise where a draw is impossible."""
    torch.manual_seed(seed)
    is_mpnet = chosen["model_type"] == "mpnet"
    vocabulary = [*SPECIAL_OF_MPNET, *WORDS.split(), "<mask>"] if is_mpnet else SPECIAL + WORDS.split()
    sizes = dict(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=48 + 2 * is_mpnet, initializer_range=0.4, num_labels=chosen["labels"]
    )  # fmt: skip
    own = {"embedding_size": 8, "num_hidden_groups": chosen["groups"]} if chosen["model_type"] == "albert" else {}
    own |= {key: chosen[key] for key in ("hidden_act", "layer_norm_eps") if chosen[key] is not MISSING}
    config = transformers.AutoConfig.for_model(chosen["model_type"], **sizes, **own)
    auto = {
        "embedder": transformers.AutoModel,
        **dict.fromkeys(("sparse", "router"), transformers.AutoModelForMaskedLM),
        "cross_encoder": transformers.AutoModelForSequenceClassification,
        "classifier": transformers.AutoModelForSequenceClassification,
        "tagger": transformers.AutoModelForTokenClassification,
    }[chosen["kind"]]
    model = auto.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name:
            parameter.data += torch.randn_like(parameter) * 0.2
    folder.mkdir(parents=True)
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join(vocabulary) + "\n")
    said = {key: value for key, value in of_tokenizer(chosen).items() if value is not MISSING}
    tokenizer_class = transformers.MPNetTokenizer if is_mpnet else transformers.BertTokenizerFast
    tokenizer = tokenizer_class(vocab=str(vocab_file), **said)
    inside = folder
    if chosen["kind"] in EMBEDDERS:
        plain = folder.with_name("plain")
        model.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
    if chosen["kind"] in ("sparse", "router"):
        modules = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling(*chosen["splade"])]
        if chosen["kind"] == "router":
            table = SparseStaticEmbedding(tokenizer, torch.rand(len(vocabulary)))
            modules, inside = [Router.for_query_document([table], modules)], folder / "document_0_Transformer"
        SparseEncoder(modules=modules).save(str(folder), create_model_card=False)
        edit_sentence_files(folder, inside, chosen)
        if chosen["kind"] == "router":
            edit_tokenizer(folder / "query_0_SparseStaticEmbedding", chosen, vocabulary)
    if chosen["kind"] == "embedder":
        modules = [Transformer(str(plain)), Pooling(16, chosen["pooling"])]
        if chosen["dense"]:
            name, bias = chosen["dense"]
            activation = getattr(torch.nn, name.split(".")[1])()
            modules.append(Dense(16 * len(chosen["pooling"]), 6, bias=bias, activation_function=activation))
        modules += [Normalize()] * chosen["normalize"]
        SentenceTransformer(modules=modules).save(str(folder), create_model_card=False)
        edit_sentence_files(folder, folder, chosen)
    save_weights(model, inside, chosen)
    tokenizer.save_pretrained(inside)
    if chosen["kind"] == "cross_encoder" and chosen["activation_key"] == "settings":
        CrossEncoder(str(folder), device="cpu").save_pretrained(str(folder), create_model_card=False)
        save_weights(model, folder, chosen)
    edit_config(inside, chosen)
    edit_tokenizer(inside, chosen, vocabulary)


def save_weights(model, folder, chosen):
    model = model.to(getattr(torch, chosen["precision"]))
    for file in folder.glob("model*.safetensors*"):
        file.unlink()
    model.save_pretrained(folder, max_shard_size="10KB" if chosen["shards"] else "5GB")


def wrap(folder, wrapper):
    """Names the tensors as a training program does that has the model as an attribute; the libraries do not read it."""
    file = folder / "model.safetensors"
    if wrapper and file.exists():
        save_file({wrapper + name: tensor for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})


def change(file, **values):
    """Changes a JSON file; a value of MISSING removes its key."""
    found = json.loads(file.read_text()) if file.exists() else {}
    found = {key: value for key, value in (found | values).items() if value is not MISSING}
    file.write_text(json.dumps(found, indent=2))


def edit_sentence_files(folder, inside, chosen):
    change(
        inside / "sentence_bert_config.json", max_seq_length=chosen["max_seq_length"], do_lower_case=chosen["st_lower"]
    )
    (inside / "sentence_bert_config.json").rename(inside / f"sentence_{chosen['settings_file']}_config.json")
    change(
        folder / "config_sentence_transformers.json",
        **{"prompts": PROMPTS, "default_prompt_name": chosen["default_prompt_name"]},
    )
    if chosen["kind"] != "embedder":
        return
    pooling = {"include_prompt": chosen["include_prompt"]}
    # Booleans have an order of their own.
    if chosen["pooling_form"] == "booleans" and list(chosen["pooling"]) == [m for m in MODES if m in chosen["pooling"]]:
        pooling |= {f"pooling_mode_{key}": mode in chosen["pooling"] for mode, key in MODES.items()}
        pooling["pooling_mode"] = MISSING
    change(folder / "1_Pooling" / "config.json", **pooling)


def edit_config(folder, chosen):
    values = dict(chosen["extra"])
    if chosen["kind"] in EMBEDDERS:
        values.pop("num_labels", None)
    for key in ("hidden_act", "layer_norm_eps"):
        if chosen[key] is MISSING:
            values[key] = MISSING
    if chosen["kind"] not in EMBEDDERS:
        names = chosen["names"]
        if names is not MISSING:
            names = names if len(names) == 4 else names[: chosen["labels"]]
            values |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
            values.pop("num_labels", None)
        values |= {"problem_type": chosen["problem_type"]}
    if chosen["kind"] == "cross_encoder" and chosen["activation"] is not MISSING:
        if chosen["activation_key"] == "settings":
            change(
                folder / "config_sentence_transformers.json",
                model_type="CrossEncoder",
                activation_fn=chosen["activation"],
            )
        elif chosen["activation_key"] == "sentence_transformers":
            values["sentence_transformers"] = {"activation_fn": chosen["activation"], "version": "5.0.0"}
        else:
            values["sbert_ce_default_activation_function"] = chosen["activation"]
    change(folder / "config.json", **values)


def edit_tokenizer(folder, chosen, vocabulary):
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    if not chosen["tokenizer_json"]:
        (folder / "tokenizer.json").unlink()
    change(folder / "tokenizer_config.json", **of_tokenizer(chosen))


def of_tokenizer(chosen):
    names = {"do_lower_case": "lower", "strip_accents": "strip_accents", "model_max_length": "model_max_length"}
    return {key: chosen[name] for key, name in names.items()}


def answer(folder, chosen):
    """What the libraries answer from the folder alone."""
    if chosen["kind"] == "embedder":
        model = SentenceTransformer(str(folder), device="cpu", model_kwargs=EXACT)
        return model.encode(TEXTS, batch_size=1).tolist()
    if chosen["kind"] in ("sparse", "router"):
        model = SparseEncoder(str(folder), device="cpu", model_kwargs=EXACT)
        options = dict(batch_size=1, convert_to_sparse_tensor=False)
        return [encode(TEXTS, **options).tolist() for encode in (model.encode, model.encode_query)]
    if chosen["kind"] == "cross_encoder":
        model = CrossEncoder(str(folder), device="cpu", model_kwargs=EXACT)
        scores = model.predict(list(zip(TEXTS, SECONDS)), batch_size=1)
        return torch.as_tensor(scores).reshape(len(TEXTS), -1).tolist()
    task, options = "token-classification", {}
    if chosen["kind"] == "classifier":
        task, options = "text-classification", {"top_k": None}
    pipe = transformers.pipeline(task, model=str(folder), device="cpu", model_kwargs=EXACT, **options)
    tokenizer, model = pipe.tokenizer, pipe.model
    found = []
    for text in TEXTS[:3]:
        if chosen["kind"] == "classifier":
            (answers,) = pipe([text])
            found.append(sorted((one["label"], one["score"]) for one in answers))
        else:
            rows = tokenizer(text, return_tensors="pt")
            found.append(model(**rows).logits[0, 1:2].softmax(-1).tolist())
    return found


def main(output, seed, count):
    output, random_numbers = Path(output), random.Random(seed)
    for number in range(count):
        chosen, folder = draw(random_numbers), output / str(number)
        result = {"chosen": {key: list(value) if isinstance(value, tuple) else value for key, value in chosen.items()}}
        try:
            write(folder, chosen, seed * 10_000 + number)
        except Exception as error:
            result["impossible"] = repr(error)[:300]
        else:
            try:
                with torch.no_grad():
                    result["answers"] = answer(folder, chosen)
                wrap(folder, chosen["wrapper"])
            except Exception as error:
                result["refused"] = repr(error)[:300]
        (output / f"{number}.json").write_text(json.dumps(result))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
