"""The classes of tokenizers in transformers, which tokenizer_config.json or a model's type names."""

from typing import NamedTuple


class TokenizerClass(NamedTuple):
    """What transformers takes for a class of tokenizers, whatever its files say.

    Attributes:
        kinds: the kinds of tokenizers here that a file of this class may hold.
        own_steps: the kind of tokenizer.json whose steps transformers ignores, because it builds its own; "" for none.
        keeps_case: whether texts keep their case where no file says it.
        pair: the arguments of `row_template.pair_rules`.
        roles: special tokens, where no file says them; others take BERT's (transformers tokenization_mpnet.py).
        fairseq: the pieces that fairseq puts before those of a SentencePiece model, whose own it drops if they are the
            same (transformers/convert_slow_tokenizer.py, XLMRobertaConverter and CamembertConverter).
    """

    kinds: tuple[str, ...] = ()
    own_steps: str = ""
    keeps_case: bool = False
    pair: tuple[int, int] = (1, 1)
    roles: dict[str, str] = {}
    fairseq: tuple[str, ...] = ()


_WORDS, _PIECES, _BYTES = "wordpiece", "sentencepiece", "bpe"
_LIKE_BERT = TokenizerClass((_WORDS,), "WordPiece")
_LIKE_ROBERTA = TokenizerClass((_BYTES,), "BPE")
CLASSES = {
    "Bert": TokenizerClass((_WORDS, _PIECES, _BYTES), "WordPiece"),
    "Albert": TokenizerClass((_WORDS, _PIECES), "Unigram"),
    "MPNet": TokenizerClass(
        (_WORDS, _BYTES),
        "WordPiece",
        pair=(2, 0),
        roles={"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "[UNK]", "mask": "<mask>"},
    ),
    "XLNet": TokenizerClass((_PIECES,), "Unigram", keeps_case=True),
    "XLMRoberta": TokenizerClass((_PIECES,), pair=(2, 0), fairseq=("<s>", "<pad>", "</s>", "<unk>")),
    "Camembert": TokenizerClass(
        (_PIECES,), pair=(2, 0), fairseq=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")
    ),
    **dict.fromkeys(
        ["Electra", "MobileBert", "DistilBert", "RetriBert", "ConvBert", "Funnel", "LayoutLM", "Splinter"], _LIKE_BERT
    ),
    **dict.fromkeys(["Roberta", "Longformer", "Bart", "LED"], _LIKE_ROBERTA),
    # Their files are complete in themselves.
    **dict.fromkeys(["GPT2", "Deberta", "GPTNeoX", "CodeGen", "ModernBert"], TokenizerClass((_BYTES,))),
}
_BY_TYPE = {name.lower(): one for name, one in CLASSES.items()}
# Classes that read a tokenizer.json of any kind.
_ANY = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "PythonBackend")


def class_named(name: str) -> TokenizerClass | None:
    """Returns the class that a model's type or a class's name means, or None."""
    name = name.removesuffix("Fast").removesuffix("Tokenizer")
    return _BY_TYPE.get(name.replace("-", "").lower())


def class_names(kind: str) -> tuple[str, ...]:
    """Returns the classes' names that a file with a tokenizer of `kind` may have."""
    own = (name for name, one in CLASSES.items() if kind in one.kinds)
    return (*_ANY, *(f"{name}Tokenizer{fast}" for name in own for fast in ("", "Fast")))
