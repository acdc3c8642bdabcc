"""Lines on which an export's tokenizer is compared with ours: ten scripts, odd signs, and a tokenizer's own pieces."""

# ruff: noqa: RUF001
import itertools
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.folders.other_files import CONTROL_TOKENS

COUNT = 500
_SENTENCES = (
    "The old harbour of Saint-Malo wasn't rebuilt until 1,953; its lamps (42 of them!) burn all night, don't they?",
    "Über den schönen Flüssen Österreichs fährt früh die Straßenbahn, sagte João à Zoë: “Où est l’œuvre naïve?”",
    "Zażółć gęślą jaźń, příliš žluťoučký kůň, İstanbul'da ığdır, Tiếng Việt rất đẹp và có nhiều dấu thanh.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю в 1812 году; її ґанок стояв біля річки.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· ο καιρός στην Αθήνα είναι ωραίος, ΟΔΥΣΣΕΑΣ και ὕβρις.",
    "كان يا ما كان في قديم الزمان، مَلِكٌ حكيمٌ يسكن ١٢٣ قصرًا؛ هل تعرفه؟ سلام ‏دنیا می‌خواهم.",
    "בראשית ברא אלהים את השמים ואת הארץ, שָׁלוֹם עליכם מה שלומך היום בעיר?",
    "नमस्ते दुनिया, यह हिन्दी का एक छोटा वाक्य है जिसमें १२ शब्द और क्षत्रिय भी हैं।",
    "ฉันรักภาษาไทย ที่นี่มีน้ำและข้าว ๕๖ จาน กรุงเทพมหานคร",
    "我们在北京的老房子旁边喝茶，天气很好。２０２６年　价格是￥100！㐀𠀀豈",
    "東京の空は青く、カフェでｺｰﾋｰを飲みました。ヴァイオリンと〜ガギグゲゴ々。",
    "안녕하세요 세계, 서울의 봄은 아름답고 한글은 쉽다. 한글",
    "தமிழ் மொழி இனிமையானது; ქართული ენა ლამაზია; հայերեն լեզու; አማርኛ ቋንቋ; မြန်မာ; ភាសាខ្មែរ",
    "Emojis 👩‍👩‍👧 👍🏽 🇫🇷 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ and signs ™ ½ ﬁ Å ① ㎏ … — ‘x’ ¿qué? ©2026 №5 ∑≤∞ €3.50 #tag @user",
    "def f(x):\t return {'a': x ** 2, \"b\": [1, 22, 333]}  # https://example.org/a_b?c=d&e=%20 user@mail.com C:\\dir",
)
_ODD = (
    *("", " ", "  \t\n ", "\0", "a\0b", "\ufeffrain", "ra\u200bin", "\u202erain\u202c", "r\u0308ain", "\ufffd"),
    *("``quoted'' ´a` '", "tabs\tand\nlines\r\n\x85\u2028\u3000x\u00a0y \v\f", "a  b   c    d ", "trail   "),
    *("soft\u00adhyphen zero\u200cwidth\u200djoin\u2060er", "\x01\x02bell\x07 \x7f del", "e\u0301\u0301\u0327 \u0302o"),
    *("\ue000 private \U000f0000", "ﷺ ﬀ ǅ ẞ ß ſ K Å", "0,1 1,000,000 2,5, 3,", "'s 'T I'LL we've", "...!!!?---"),
    *("x" * 350, "\u1d2c\u1d43 ᴀ ꭓ", " \u200a lead", "＃ｆｕｌｌ　ｗｉｄｔｈ１２３"),
)


def trial_lines(tokenizer: Tokenizer) -> list[str]:
    """Returns COUNT lines.

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> lines = trial_lines(WordPieceTokenizer(b"[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\nroof\\n"))
    >>> len(lines), "the [SEP] roof" in lines
    (500, True)
    """
    names = sorted(CONTROL_TOKENS | {tokenizer.pieces[number] for number in tokenizer.special_ids[:30].tolist()})
    names += [token.content for token in tokenizer.cut_tokens[:30]]
    lines = [*_ODD, *(form for name in names for form in (name, f"the {name} roof", f"a{name}b {name}{name}"))]
    lines += [form for sentence in _SENTENCES for form in _forms(sentence)]
    random = np.random.default_rng(0)
    while len(lines) < COUNT:
        pieces = [tokenizer.pieces[number] for number in random.integers(0, tokenizer.vocab_size, 12)]
        texts = [piece.removeprefix("##").replace("▁", " ").replace("Ġ", " ") for piece in pieces]
        lines.append(("" if len(lines) % 2 else " ").join(texts))
    return lines[:COUNT]


def ordinary(tokenizer: Tokenizer, lines: Sequence[str]) -> list[str]:
    """Returns the lines of words that the vocabulary has: at most two tokens a word, and none unknown.

    What is spelt letter by letter is no text of a language that the model knows, and its answer is noise. If no line is
    left, all are returned.
    """
    ids, splits = tokenizer.encode_batch(lines)
    rows = [ids[start:end] for start, end in itertools.pairwise(splits)]
    fits = [0 < len(row) <= 2 * len(line.split()) and tokenizer.unk_id not in row for line, row in zip(lines, rows)]
    return [line for line, fit in zip(lines, fits) if fit] or list(lines)


def _forms(sentence: str) -> Iterator[str]:
    yield sentence
    yield sentence.upper()
    yield sentence.lower()
    yield unicodedata.normalize("NFD", sentence)
    yield unicodedata.normalize("NFKC", sentence)
    yield sentence.replace(" ", "")[:150]
    yield sentence.replace(" ", "  ")
    yield f" {sentence[::-1]} "
    words = sentence.split()
    for start in range(0, len(words), 3):
        yield " ".join(words[start : start + 3])
