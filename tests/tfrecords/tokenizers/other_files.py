"""Folders as the `tokenizers` library and transformers write them, drawn by a seed, with texts to try them on."""

# ruff: noqa: RUF001, SIM905

import json
import random
import string

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
models, normalizers = tokenizers.models, tokenizers.normalizers
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors
ROLES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = (
    "the in is paris film Hello hello schön schon 中 2019 2 0 1 9 covid ##19 e1 x ##x a b ##b E A é ( ) [ ] ,".split()
)
PIECES = "▁ ▁the ▁in the in ▁2 2 0 1 9 2019 ▁2019 a b c e d x , ▁, ▁a ▁e é 00 h t n E ▁E f i".split()
PARTS = [
    *"the in paris film hello Hello 2019 2 covid19 COVID19 CoVíD19 schön SCHÖN [E1] [e1] E1 中x ﬁ İ ½ ｔｈｅ".split(),
    *("new york", "New  York", "e\u0301", "👩\u200d👩", "``", "''", "x" * 60, "x" * 120, "  "),
    *'xabÉ中Σ(),¨"한   \n\t\u00a0\u3000\u200b\u200d\uf0b7\U000f0000\x01\u0301\u093f\ufeff\u1734\u0378',
]


def library_wordpiece(pieces, **rules):
    """Returns the library's tokenizer of BERT's kind."""
    model = models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(**rules),
        pre_tokenizers.BertPreTokenizer(),
    )
    return tokenizer


def texts(rng, count=12):
    return ["".join(rng.choices(PARTS, k=rng.randint(0, 9))) for _ in range(count)]


def added_tokens(rng, tokenizer):
    """Adds some tokens, special or not, that take in white space or not."""
    for content in rng.sample(
        ["[E1]", "[unused1]", "covid19", "COVID", "New York", "hello", "the", "#tag"], rng.choice([0, 0, 1, 2])
    ):
        flags = {name: rng.random() < 0.05 for name in ("lstrip", "rstrip")} | {"single_word": rng.random() < 0.02}
        token = tokenizers.AddedToken(content, **flags)
        (tokenizer.add_special_tokens if rng.random() < 0.5 else tokenizer.add_tokens)([token])


def frame(rng, tokenizer, cls, sep):
    ids = [(name, tokenizer.token_to_id(name)) for name in (cls, sep)]
    pair = rng.choice(
        [f"{cls} $A {sep} $B:1 {sep}:1"] * 12 + [f"{cls} $A {sep} {sep} $B {sep}", f"{cls} $A $B:1 {sep}:1"]
    )
    tokenizer.post_processor = rng.choice(
        [
            *[processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=pair, special_tokens=ids)] * 9,
            processors.BertProcessing(ids[1], ids[0]),
            processors.RobertaProcessing(ids[1], ids[0]),
            processors.TemplateProcessing(single=f"$A {sep}", pair=f"$A {sep} $B:1 {sep}:1", special_tokens=ids[1:]),
        ]
    )


def wordpiece(rng):
    cls, sep, unk = rng.choice([("[CLS]", "[SEP]", "[UNK]")] * 4 + [("<s>", "</s>", "<unk>")])
    pieces = list(dict.fromkeys([*ROLES, cls, sep, unk, *WORDS, *string.ascii_lowercase]))
    vocabulary = {piece: number + (number > 20) * rng.choice([0, 0, 1]) for number, piece in enumerate(pieces)}
    if len(set(vocabulary.values())) < len(pieces):
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
    longest, prefix = rng.choice([100, 100, 200, 50, 3]), rng.choice(["##"] * 24 + ["@@"])
    model = models.WordPiece(
        vocabulary, unk_token=unk, max_input_chars_per_word=longest, continuing_subword_prefix=prefix
    )
    tokenizer = tokenizers.Tokenizer(model)
    bert = normalizers.BertNormalizer(
        clean_text=rng.random() < 0.8,
        handle_chinese_chars=rng.random() < 0.8,
        strip_accents=rng.choice([None, None, True, False]),
        lowercase=rng.random() < 0.6,
    )
    tokenizer.normalizer = rng.choice(
        [bert] * 20
        + [normalizers.Sequence([bert]), None, normalizers.Lowercase(), normalizers.Sequence([bert, normalizers.NFC()])]
    )
    before = pre_tokenizers.BertPreTokenizer()
    others = [
        pre_tokenizers.Whitespace(),
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Sequence([before, pre_tokenizers.Digits(True)]),
    ]
    tokenizer.pre_tokenizer = rng.choice([before] * 30 + [pre_tokenizers.Sequence([before]), *others, None])
    return tokenizer, cls, sep


def unigram(rng):
    scores = random.Random(7)
    special = ["<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [(piece, 0.0) for piece in special] + [(piece, -scores.uniform(2, 6)) for piece in PIECES]
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, 0, byte_fallback=False))
    n = normalizers
    quotes = [n.Replace("``", '"'), n.Replace("''", '"')]
    steps = [
        *(quotes if rng.random() < 0.6 else []),
        *([n.NFKD(), n.StripAccents()] if rng.random() < 0.6 else [n.NFD()] if rng.random() < 0.2 else []),
        *([n.Lowercase()] if rng.random() < 0.6 else []),
        *(
            [rng.choice([n.NFC(), n.NFKC(), n.Strip(), n.Nmt(), n.Replace("the", "in"), n.Prepend("▁")])]
            if rng.random() < 0.1
            else []
        ),
        *([n.Replace(tokenizers.Regex(" {2,}"), " ")] if rng.random() < 0.5 else []),
    ]
    if rng.random() < 0.1:
        rng.shuffle(steps)
    tokenizer.normalizer = n.Sequence(steps) if steps or rng.random() < 0.5 else None
    p = pre_tokenizers
    metaspace = p.Metaspace()
    others = [
        *(p.Metaspace(prepend_scheme=scheme) for scheme in ("first", "never")),
        p.Metaspace(split=False),
        p.Sequence([p.Digits(True), metaspace]),
        p.Sequence([p.Punctuation(), metaspace]),
        p.Whitespace(),
        p.WhitespaceSplit(),
    ]
    tokenizer.pre_tokenizer = rng.choice(
        [metaspace] * 20 + [p.Sequence([p.WhitespaceSplit(), metaspace])] * 20 + others
    )
    tokenizer.add_special_tokens(special)
    return tokenizer, "[CLS]", "[SEP]"


def byte_bpe(rng):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ("t h", "th e", "Ġ the", "i n", "Ġ in", "2 0", "1 9", "20 19", "Ġ a", "Ċ Ċ")
    merges = [tuple(pair.split()) for pair in pairs]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet, *(left + right for left, right in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    more = rng.choice([{}] * 20 + [{"dropout": 0.1}, {"end_of_word_suffix": "</w>"}])
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, **more))
    level = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.4, use_regex=rng.random() < 0.9)
    digits = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(rng.random() < 0.5), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("i", rng.choice(["isolated", "removed"])),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.pre_tokenizer = rng.choice([level] * 8 + [digits, digits, split, pre_tokenizers.Whitespace()])
    tokenizer.normalizer = rng.choice(
        [None] * 12 + [normalizers.NFC(), normalizers.NFC(), normalizers.Lowercase(), normalizers.NFKC()]
    )
    tokenizer.add_special_tokens(pieces[:5])
    return tokenizer, "<s>", "</s>"


def draw(seed, folder):
    """Writes a folder; returns the library's tokenizer of its tokenizer.json, and texts."""
    rng = random.Random(seed)
    make = (wordpiece, wordpiece, unigram, byte_bpe)[seed % 4]
    tokenizer, cls, sep = make(rng)
    if rng.random() < 0.8:
        frame(rng, tokenizer, cls, sep)
    if make is not unigram or rng.random() < 0.1:
        added_tokens(rng, tokenizer)
    if rng.random() < 0.3:
        tokenizer.enable_truncation(max_length=4)
        tokenizer.enable_padding(length=8)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    if rng.random() < 0.1:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    if make is wordpiece and rng.random() < 0.5:
        ids = tokenizer.get_vocab(with_added_tokens=False)
        names = {number: piece for piece, number in ids.items()}
        (folder / "vocab.txt").write_text("".join(f"{names.get(one, '[hole]')}\n" for one in range(max(names) + 1)))
    config = rng.choice([{}, {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4, "cls_token": cls}])
    config |= rng.choice(
        [{}] * 20 + [{"never_split": ["film"]}, {"padding_side": "left"}, {"sp_model_kwargs": {"alpha": 0.1}}]
    )
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, [*texts(rng), "  a", "a  b ", "a\n", "2,a"]
