"""The fuzz targets on their seeds, and on every input that was once a fault: answered, or refused as promised."""

import json

import pytest

from fuzz.guard import guarded
from fuzz.run import SEEDS
from fuzz.run import TARGETS as NAMES
from fuzz.targets import TARGETS


def changed(target, seed, *path, to):
    """The target, and its seed with one value changed."""
    document = json.loads((SEEDS / target / seed).read_bytes())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return target, json.dumps(document).encode()


# A SentencePiece model with a piece that is not UTF-8.
_OTHER_PIECE = (SEEDS / "vocabularies" / "sentencepiece").read_bytes().replace(b"\n\1m\x15", b"\n\1\xd6\x15")
# What once raised what it should not have, or took too much.
FOUND = [
    changed("configurations", "xlnet.json", "xlnet_config.json", "n_head", to=0),
    changed("configurations", "xlnet.json", "xlnet_config.json", "n_head", to="d_head"),
    changed("configurations", "xlnet.json", "xlnet_config.json", "mem_len", to="x"),
    changed("configurations", "albert.json", "config.json", "model_type", to={"x": "roberta"}),
    changed("configurations", "roberta.json", "config.json", "pad_token_id", to="x"),
    changed("configurations", "roberta.json", "config.json", to={"model_type": "roberta", "architectures": 50}),
    changed("configurations", "sentences.json", "sentence_bert_config.json", "max_seq_length", to=[[]]),
    changed("configurations", "sentences.json", "config_sentence_transformers.json", "prompts", to=["query"]),
    changed("configurations", "sentences.json", "config_sentence_transformers.json", "default_prompt_name", to=["x"]),
    changed("tokenizers", "wordpiece.json", "tokenizer.json", "added_tokens", 0, "id", to=float("inf")),
    changed("tokenizers", "wordpiece.json", "tokenizer.json", "model", "vocab", "[PAD]", to=2**31),
    changed("tokenizers", "vocab_txt.json", "added_tokens.json", to={"[new]": "tokenizer_config.json"}),
    changed("tokenizers", "wordpiece.json", "tokenizer.json", to="null"),
    changed("tokenizers", "bpe.json", "tokenizer.json", "model", "vocab", "a", to=0.5),
    changed("tokenizers", "unigram.json", "tokenizer.json", "model", "vocab", to=[["[CLS]", 0.0, 1]]),
    changed("tokenizers", "bpe.json", "tokenizer.json", "model", "unk_token", to="["),
    ("vocabularies", _OTHER_PIECE),
]


@pytest.fixture(scope="module")
def check_of(tmp_path_factory):
    """check_of(name): the function of a target, with the rule about it."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = guarded(TARGETS[name].make(tmp_path_factory.mktemp(name)), TARGETS[name].promised)
        return made[name]

    return make


def test_every_target_has_seeds():
    assert set(NAMES) == set(TARGETS)
    # All of them are for the repository: small.
    assert sum(path.stat().st_size for path in SEEDS.rglob("*") if path.is_file()) < 100_000


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_answered(name, check_of, tmp_path):
    target, made = TARGETS[name], TARGETS[name].make(tmp_path)
    accepted = 0
    for path in sorted((SEEDS / name).iterdir()):
        data = path.read_bytes()
        assert len(data) <= target.max_bytes, path
        # First without the rule about it: kernels are compiled, which takes longer than an input may.
        try:
            made(data)
            accepted += 1
        except target.promised:
            pass
        check_of(name)(data)
    assert accepted, "every seed is refused: nothing behind the first check would be reached"


@pytest.mark.parametrize("name, data", FOUND)
def test_what_was_a_fault_is_none(name, data, check_of):
    check_of(name)(data)
