"""Lists which settings of other programs' tokenizer files are supported."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from absl import logging

from tfrecords.tokenizers.base import BY_IDS, UnknownTokenizer


class TokenizerClass(NamedTuple):
    """What transformers takes for a class of tokenizers, whatever its files say.

    Attributes:
        kinds: the kinds of tokenizers here that a file of this class may hold.
        own_steps: the kind of tokenizer.json whose steps transformers ignores, because it builds its own; "" for none.
        keeps_case: whether texts keep their case where no file says it.
        pair: the arguments of `row_template.pair_rules`.
        roles: special tokens, where no file says them; others take BERT's.
        fairseq: the pieces that fairseq puts before those of a SentencePiece model, whose own it drops if they are the
            same (transformers/convert_slow_tokenizer.py).
        segments: the last version of transformers that gives second texts segment 1 if no model_input_names are stated;
            0 for none.
    """

    kinds: tuple[str, ...] = ()
    own_steps: str = ""
    keeps_case: bool = False
    pair: tuple[int, int] = (1, 1)
    roles: dict[str, str] = {}
    fairseq: tuple[str, ...] = ()
    segments: int = 4


_WORDS, _PIECES, _BYTES = "wordpiece", "sentencepiece", "bpe"
_LIKE_BERT = TokenizerClass((_WORDS,), "WordPiece", segments=5)
_LIKE_ROBERTA = TokenizerClass((_BYTES,), "BPE", segments=0)
CLASSES = {
    "Bert": TokenizerClass((_WORDS, _PIECES, _BYTES), "WordPiece", segments=5),
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
    **dict.fromkeys(["Electra", "MobileBert", "RetriBert", "ConvBert", "Funnel", "LayoutLM", "Splinter"], _LIKE_BERT),
    "NomicBert": _LIKE_BERT,
    "DistilBert": _LIKE_BERT._replace(segments=0),
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
    return _BY_TYPE.get(name.replace("-", "").replace("_", "").lower())


def class_names(kind: str) -> tuple[str, ...]:
    """Returns the classes' names that a file with a tokenizer of `kind` may have."""
    own = (name for name, one in CLASSES.items() if kind in one.kinds)
    return (*_ANY, *(f"{name}Tokenizer{fast}" for name in own for fast in ("", "Fast")))


# Files in which sentence-transformers stores whether it lower-cases a text first. The first name is the current one.
SENTENCE_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
ANY = None


class Known(NamedTuple):
    """A known key of tokenizer_config.json.

    values: accepted values, besides a missing or null one; ANY for all. kinds: kinds of tokenizers to which `values`
    apply; empty for all.
    """

    values: tuple | None = ANY
    kinds: tuple[str, ...] = ()

    def lets_pass(self, value: Any, kind: str) -> bool:
        applies = self.values is not ANY and (not self.kinds or kind in self.kinds)
        return value is None or not applies or _is_among(value, self.values)


_TRUE_OR_FALSE = (True, False)


def _all(*keys: str, values: tuple | None = ANY, kinds: tuple[str, ...] = ()) -> dict[str, Known]:
    return dict.fromkeys(keys, Known(values, kinds))


ROLE_KEYS = ("cls_token", "sep_token", "pad_token", "unk_token", "mask_token", "bos_token", "eos_token")
MORE_TOKENS_KEYS = ("additional_special_tokens", "extra_special_tokens")
# tokenizer_config.json and special_tokens_map.json.
CONFIG = {
    # Followed.
    **_all(*ROLE_KEYS, *MORE_TOKENS_KEYS, "added_tokens_decoder", "model_max_length", "max_len"),
    **_all("do_lower_case", "strip_accents", "keep_accents", values=_TRUE_OR_FALSE),
    **_all("tokenize_chinese_chars", "clean_text", "trim_offsets", values=_TRUE_OR_FALSE),
    # Followed where it is the usual value.
    **_all("add_prefix_space", values=(True,), kinds=("sentencepiece",)),
    **_all("do_basic_tokenize", "remove_space", "do_word_tokenize", "do_subword_tokenize", values=(True,)),
    **_all("never_split", values=([],), kinds=("wordpiece",)),
    **_all("sp_model_kwargs", values=({},), kinds=("sentencepiece",)),
    **_all("split_special_tokens", "normalization", "add_bos_token", "add_eos_token", values=(False,)),
    **_all("word_tokenizer_type", values=("basic",)),
    **_all("subword_tokenizer_type", values=("wordpiece",)),
    **_all("wordpieces_prefix", values=("##",)),
    **_all("padding_side", values=("right",), kinds=("wordpiece", "bpe")),
    **_all("truncation_side", values=("right",)),
    # Rows are framed, cut and padded by max_seq_length, not by the file.
    **_all("truncation", "truncation_strategy", "padding", "stride", "max_length", "pad_to_multiple_of"),
    **_all("pad_token_type_id", "model_input_names", "return_token_type_ids", "only_label_first_subword"),
    # These change texts made of ids, and no ids; chats are no input here.
    **_all("clean_up_tokenization_spaces", "spaces_between_special_tokens", "errors"),
    **_all("chat_template", "use_default_system_prompt"),
    # Tokenizers of other languages write these, with null.
    **_all("mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs"),
    # Notes of who wrote the file.
    **_all("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file", "backend"),
    **_all("transformers_version", "use_fast", "from_slow", "is_local", "local_files_only", "processor_class"),
    **_all("tokenizer_class", "model_type", "legacy", "device", "init_inputs", "full_tokenizer_file", "revision"),
    **_all("trust_remote_code", "use_auth_token", "cache_dir", "unk_id", "bos_token_id", "eos_token_id"),
    **_all("pad_token_id", "cls_token_id", "sep_token_id", "mask_token_id", "unk_token_id", "verbose"),
}

# tokenizer.json: the parts, in each its steps, and of each step its keys.
_MORE = {"version": ("1.0",), "truncation": ANY, "padding": ANY, "decoder": ANY}
_BERT = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), _TRUE_OR_FALSE)
_BYTES = {"add_prefix_space": _TRUE_OR_FALSE, "trim_offsets": _TRUE_OR_FALSE, "use_regex": _TRUE_OR_FALSE}
FRAMES = {
    "TemplateProcessing": {"single": ANY, "pair": ANY, "special_tokens": ANY},
    "BertProcessing": {"cls": ANY, "sep": ANY},
    "RobertaProcessing": {"cls": ANY, "sep": ANY, "trim_offsets": _TRUE_OR_FALSE, "add_prefix_space": _TRUE_OR_FALSE},
}
_NOTHING = dict[str, Any]()


def _keys(names: str) -> dict[str, None]:
    return dict.fromkeys(names.split())


# openai/gpt-2:encoder.py; ByteLevel of `tokenizers` has it built in.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
STEPS: dict[str, dict[str, dict[str, dict[str, tuple | None]]]] = {
    "WordPiece": {
        # The first is sentence-transformers' own step, before the tokenizer's.
        "normalizer": {"Lowercase": _NOTHING, "BertNormalizer": _BERT},
        "pre_tokenizer": {"BertPreTokenizer": _NOTHING},
        "post_processor": FRAMES,
        "model": {
            "WordPiece": {
                "vocab": ANY,
                "unk_token": ANY,
                "max_input_chars_per_word": ANY,
                "continuing_subword_prefix": ("##",),
            }
        },
    },
    "Unigram": {
        "normalizer": {
            **dict.fromkeys(("NFD", "NFKD", "StripAccents", "Lowercase"), _NOTHING),
            "Precompiled": {"precompiled_charsmap": ANY},
            "Replace": {
                "pattern": ({"String": "``"}, {"String": "''"}, {"Regex": " {2,}"}),
                "content": ('"', " ", "▁"),
            },
            "Strip": {"strip_left": (False,), "strip_right": (True,)},
        },
        "pre_tokenizer": {
            "WhitespaceSplit": _NOTHING,
            "Metaspace": {
                "replacement": ("▁",),
                "str_rep": ("▁",),
                "prepend_scheme": ("always",),
                "add_prefix_space": (True,),
                "split": (True,),
            },
        },
        "post_processor": FRAMES,
        "model": {"Unigram": {"vocab": ANY, "unk_id": ANY, "byte_fallback": (False,)}},
    },
    # Tokenized by the library, in which all steps are exact.
    "BPE of the library": {
        "normalizer": {"NFC": _NOTHING, "Replace": _keys("pattern content")},
        "pre_tokenizer": {
            "Metaspace": _keys("replacement str_rep prepend_scheme add_prefix_space split"),
            "Split": _keys("pattern behavior invert"),
            "ByteLevel": _BYTES,
        },
        "post_processor": FRAMES | {"ByteLevel": _BYTES},
        "model": {
            "BPE": _keys("vocab merges unk_token fuse_unk byte_fallback ignore_merges")
            | {"dropout": (0.0,), "continuing_subword_prefix": ("",), "end_of_word_suffix": ("",)}
        },
    },
    "BPE": {
        "normalizer": {"NFC": _NOTHING},
        "pre_tokenizer": {
            "ByteLevel": _BYTES,
            "Split": {"pattern": ({"Regex": GPT2_PATTERN},), "behavior": ("Isolated",), "invert": (False,)},
        },
        "post_processor": FRAMES | {"ByteLevel": _BYTES},
        "model": {
            "BPE": {
                **dict.fromkeys(("vocab", "merges", "unk_token")),
                "ignore_merges": (False,),
                # No text is unknown to bytes.
                **dict.fromkeys(("fuse_unk", "byte_fallback"), _TRUE_OR_FALSE),
                "dropout": (0.0,),
                "continuing_subword_prefix": ("",),
                "end_of_word_suffix": ("",),
            }
        },
    },
}
_TOKEN = {"content": ANY, "id": ANY, "single_word": (False,)} | dict.fromkeys(
    ("lstrip", "rstrip", "normalized", "special"), _TRUE_OR_FALSE
)
# Special tokens of published models. Their strings in a text are text, as those of the rows' own special tokens are:
# whoever writes a text must not write the model's control tokens.
CONTROL_TOKENS = {"<s>", "</s>", "<pad>", "<unk>", "<mask>", "<cls>", "<sep>", "<eod>", "<eop>", "<|endoftext|>"}
CONTROL_TOKENS |= {"<|padding|>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
CONTROL_TOKENS |= {piece for one in CLASSES.values() for piece in one.fairseq}


def check_config(settings: dict[str, Any], kind: str, where: str) -> None:
    """Checks a tokenizer_config.json or special_tokens_map.json; warns of unknown keys.

    Raises UnknownTokenizer for an unsupported value.
    """
    table = CONFIG | {"tokenizer_class": Known(class_names(kind)), "auto_map": Known(())}
    for key, value in settings.items():
        if key in table and not table[key].lets_pass(value, kind):
            refuse(where, f"says {key}={_short(value)}")
    unknown = [f"{key}={_short(value)}" for key, value in settings.items() if key not in table and value is not None]
    if unknown:
        logging.warning("of '%s', %s is unknown here and not followed", where, ", ".join(unknown))


def kind_of(values: dict[str, Any]) -> str:
    """Returns the kind of a tokenizer.json's model; infers it for early files, which lack it."""
    model = values["model"]
    unnamed = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    return model.get("type") or unnamed


def is_of_library(values: dict[str, Any]) -> bool:
    """Returns whether a tokenizer.json is a BPE of Gemma's or Llama 3's form."""
    model, levels = values["model"], [step["type"] == "ByteLevel" for step in steps_of(values, "pre_tokenizer")]
    return kind_of(values) == "BPE" and bool(model.get("ignore_merges") if any(levels) else model.get("byte_fallback"))


def check_file(values: dict[str, Any], where: str, kind: str = "") -> None:
    """Raises UnknownTokenizer for an unsupported part, step or key of a tokenizer.json."""
    kind = kind or ("BPE of the library" if is_of_library(values) else kind_of(values))
    if kind not in STEPS:
        raise UnknownTokenizer(
            f"'{where}' holds a {kind} tokenizer, known are WordPiece, Unigram and BPE of bytes; {BY_IDS}"
        )
    for part, value in values.items():
        if part in STEPS[kind]:
            for step in steps_of(values, part):
                known, keys = STEPS[kind][part], {key: value for key, value in step.items() if key != "type"}
                if step["type"] not in known:
                    refuse(where, f"has the {part} {step['type']}{f' {_short(keys)}' if keys else ''}")
                _check_keys(keys, known[step["type"]], f"{part} {step['type']}", where)
        elif part == "added_tokens":
            for token in value or []:
                _check_keys(token, _TOKEN, f"added token {token['content']!r}", where)
        else:
            _check_keys({part: value}, _MORE, "file", where)


def steps_of(values: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Returns the steps of a tokenizer.json's part such as "normalizer", flattened."""
    if part == "model":
        return [{"type": kind_of(values)} | values["model"]]
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
    return list(_flat(values.get(part), names[part]))


def _flat(step: dict[str, Any] | None, name: str) -> Iterable[dict[str, Any]]:
    if step and step.get("type") == "Sequence":
        for inner in step[name]:
            yield from _flat(inner, name)
    elif step:
        yield step


def _check_keys(values: dict[str, Any], known: dict[str, tuple | None], name: str, where: str) -> None:
    for key, value in values.items():
        if value is not None and (key not in known or (known[key] is not ANY and not _is_among(value, known[key]))):
            refuse(where, f"has {key}={_short(value)} ({name})")


def _is_among(value: Any, values: tuple) -> bool:
    # To Python, 0 and 1 equal false and true.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def refuse(where: str | Path, said: str) -> NoReturn:
    """Raises UnknownTokenizer for an unsupported setting of a file."""
    raise UnknownTokenizer(f"'{where}' {said}, which is not followed; {BY_IDS}")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
