"""Compares what a model server answers with Keras, for each kind of export, through the client and the gateway.

python -m scripts.published_server                                       exports, starts a server, asks it
python -m scripts.published_server export --output_dir=servables         only exports, for a server started elsewhere:
docker run -d -p 8500:8500 -v "$PWD/servables:/models" tensorflow/serving --model_config_file=/models/models.config
python -m scripts.published_server ask --output_dir=servables --target=127.0.0.1:8500
python -m scripts.published_server versions                              asks other versions of TensorFlow and LiteRT

The server is `tensorflow_model_server` where that is on the PATH, and the embedded one otherwise.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from scripts import command
from serving.client import Client
from tests.servers import config_of, free_port, post, running_gateway, running_server
from tfrecords.base.errors import UserError
from tfrecords.base.files import read_json, write_json

TEXTS = ("the parcel is late", "where is my parcel", "i forgot the password", "the invoice is wrong, please help!")
LABELS = ("delivery", "account", "invoice")
# Name: the tokenizer, and how the export computes.
COMPUTES = ("float32", "bfloat16", "int8")
TOKENIZERS = ("ids", "wordpiece", "sentencepiece", "byte_bpe")
CASES = {f"{kind}-{compute}": (kind, compute) for kind in TOKENIZERS for compute in COMPUTES}
LITERT = {f"litert-{compute}": ("ids", compute) for compute in ("float32", "int8")}
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.02, "int8": 0.05}
# Packages of the environments that `versions` makes; an earlier TensorFlow has no wheels for this Python.
_MINORS = ("2.17", "2.18", "2.19", "2.20", "2.21")
VERSIONS = [f"tensorflow=={minor}.* tensorflow-text=={minor}.*" for minor in _MINORS]
VERSIONS += [f"ai-edge-litert=={version}" for version in ("2.1.6", "2.2.0", "2.3.0")]
EXPECTED = "expected.json"


def make_tokenizer(kind: str, folder: Path):
    """Returns a small tokenizer of a kind, made from TEXTS."""
    from tfrecords.tokenizers.loading import load_tokenizer
    from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer

    folder.mkdir()
    if kind == "wordpiece":
        words = sorted({word.strip(",!") for text in TEXTS for word in text.split()} | {",", "!", "##s"})
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
        return load_tokenizer(folder / "vocab.txt")
    if kind == "byte_bpe":
        (folder / "tokenizer.json").write_bytes(train_bpe(TEXTS * 50, 300, hard_vocab_limit=False))
        return load_tokenizer(folder)
    (folder / "spm.model").write_bytes(train_tokenizer(TEXTS * 50, 60, hard_vocab_limit=False))
    return load_tokenizer(folder / "spm.model")


def export_all(output_dir: Path) -> None:
    """Exports every case; writes what Keras answers, and the config of a server that sees the folder as /models."""
    import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

    import keras

    import albert_tf
    from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder
    from serving.export import ExportSettings, export

    expected = {}
    for name, (kind, compute) in (CASES | LITERT).items():
        keras.utils.set_random_seed(len(expected) + 1)
        with tempfile.TemporaryDirectory() as temporary:
            tokenizer, run = (
                make_tokenizer("wordpiece" if kind == "ids" else kind, Path(temporary) / "tokenizer"),
                Path(temporary) / "run",
            )
            run.mkdir()
            config = AlbertConfig(
                vocab_size=tokenizer.vocab_size, embedding_size=16, hidden_size=64, num_hidden_layers=3,
                num_attention_heads=4, intermediate_size=128, max_position_embeddings=64,
            )  # fmt: skip
            tokenizer.save(run)
            AlbertClassifier(AlbertEncoder(config), len(LABELS), labels=list(LABELS)).save(run / "model.keras")
            answers = albert_tf.load(run).predict(list(TEXTS))
            how = {"inputs": "ids" if kind == "ids" else "text", "engine": "litert" if name in LITERT else "tensorflow"}
            try:
                export(ExportSettings(model=str(run), output_dir=str(output_dir / name), compute=compute, **how))
            except UserError as error:
                print(f"left out: {name}: {error}")
                continue
        expected[name] = {
            "probabilities": [list(answer["probabilities"].values()) for answer in answers],
            "texts": list(TEXTS),
            "ids": [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in TEXTS],
        }
    write_json(output_dir / EXPECTED, expected)
    served = {name: f"/models/{name}" for name in expected if name in CASES}
    (output_dir / "models.config").write_text(config_of(served))


def ask_all(target: str, expected: dict, folder: Path) -> list[str]:
    """Asks for every case; prints a line for each.

    Args:
        target: HOST:PORT of the server's gRPC port.
        expected: By case, what Keras answers, and ids.
        folder: For the gateway's log.

    Returns:
        The cases whose answers differ by more than their tolerance.
    """
    wrong = []
    for name in filter(expected.get, CASES):
        kind, compute = CASES[name]
        with Client(target, name) as client:
            asked = client.predict_ids(expected[name]["ids"]) if kind == "ids" else client.predict_text(list(TEXTS))
        answers = {"client": np.asarray(asked["probabilities"], "float64")}
        if kind != "ids":
            with running_gateway(target, name, folder, free_port()) as url:
                answers["gateway"] = np.array([_by_gateway(url, text) for text in TEXTS])
        for way, probabilities in answers.items():
            difference = float(np.abs(probabilities - expected[name]["probabilities"]).max())
            is_right = difference <= TOLERANCES[compute]
            print(f"{name:14} by {way:8} differs from Keras by {difference:.1e}{'' if is_right else '  WRONG'}")
            wrong += [] if is_right else [f"{name} by {way}"]
    return wrong


def ask_versions(folder: Path) -> list[str]:
    """Asks every export in an environment of each of VERSIONS; prints a table.

    Returns:
        The exports that answer otherwise in a version.
    """
    wrong = []
    for packages in VERSIONS:
        with tempfile.TemporaryDirectory() as environment:
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            python = f"{environment}/bin/python"
            subprocess.run([python, "-m", "pip", "install", "-q", "numpy", *packages.split()], check=True)
            script = Path(__file__).with_name("servable_answers.py")
            done = subprocess.run([python, script, folder], check=True, stdout=subprocess.PIPE, text=True)
        print(packages)
        for name, found in json.loads(done.stdout.splitlines()[-1]).items():
            _, compute = (CASES | LITERT)[name]
            is_right = isinstance(found, float) and found <= TOLERANCES[compute]
            print(f"  {name:24} {found if isinstance(found, str) else f'{found:.1e}'}", flush=True)
            wrong += [] if is_right else [f"{name} in {packages}"]
    return wrong


def _by_gateway(url: str, text: str) -> list[float]:
    scores = {one["label"]: one["score"] for one in post(f"{url}/predict", {"inputs": text})}
    return [scores[label] for label in LABELS]


def main() -> None:
    """Runs the command."""
    parser = command.parser(__doc__, "scripts.published_server")
    parser.add_argument("step", nargs="?", choices=("export", "ask", "versions"), help="one step alone")
    parser.add_argument("--output_dir", type=Path, help="folder of the exports")
    parser.add_argument("--target", default="", help="HOST:PORT of a server that runs already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.output_dir or Path(temporary)).resolve()
        if arguments.step != "ask":
            export_all(folder)
        if arguments.step == "export":
            return
        expected = read_json(folder / EXPECTED)
        if arguments.step == "versions":
            wrong = ask_versions(folder)
        elif arguments.target:
            wrong = ask_all(arguments.target, expected, Path(temporary))
        else:
            bases = {name: folder / name for name in filter(expected.get, CASES)}
            with running_server(bases, Path(temporary), free_port()) as target:
                wrong = ask_all(target, expected, Path(temporary))
    if wrong:
        raise UserError(f"answers differ from Keras: {', '.join(wrong)}")


if __name__ == "__main__":
    command.run(main)
