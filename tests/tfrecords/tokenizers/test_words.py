"""Which tokens begin a word, in text with white space between words and in text without it, for every tokenizer."""

# ruff: noqa: RUF001
import io
import itertools

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.examples.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.examples.randomness import derive
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.training import CONTROL_PIECES, train_bpe, train_tokenizer
from tfrecords.tokenizers.words import unspaced_table

SPACED = {
    "accented Latin": "café naïve Größe čeština żółć ığdır smørrebrød œuvre",
    "Vietnamese": "Tiếng Việt được viết bằng chữ quốc ngữ",
    "Cyrillic": "Съешь ещё этих мягких французских булок Україна",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "Hangul": "다람쥐 헌 쳇바퀴에 타고파 키스의 고유조건은",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი",
    "Hebrew": "כל בני האדם נולדו בני חורין",
    "Arabic": "يولد جميع الناس أحرارا متساوين",
    "Persian": "تمام افراد بشر آزاد به دنیا می‌آیند",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में",
    "Tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே",
    "Sinhala": "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත",
    "Amharic": "የሰው ልጅ ሁሉ ሲወለድ ነጻና",
}
UNSPACED = {
    "Chinese": "人人生而自由在尊严和权利上一律平等",
    "Japanese": "すべての人間は生まれながらにして自由でありデータと々〆",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน",
    "Lao": "ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ",
    "Khmer": "មនុស្សទាំងអស់កើតមកមានសេរីភាព",
    "Burmese": "လူတိုင်းသည်တူညီလွတ်လပ်သောဂုဏ်သိက္ခာဖြင့်",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས",
    "Javanese": "ꦱꦧꦼꦤ꧀ꦮꦺꦴꦁꦏꦭꦃꦲꦶꦫꦏꦺ",
    "rare Han": "𠀀𠀁𪜀𫝀𫠠",
}
ENGLISH = [
    "In 1999, he (don't ask) sold 1,234,567 shares; \u201cquoted\u201d - it\u2019s \u2026 \u2014 3.5% & $7/£8 #x_y [z]",
    "The state-of-the-art e-mail user@example.com, http://a.b/c?d=e&f, WE'VE it's 1/2 ½ ™ © 20° × 2² \U0001f600!",
]


@pytest.fixture(scope="module")
def english_bpe(corpus_lines):
    """Byte-level BPE that saw English alone: other letters are bytes to it."""
    return ByteBPETokenizer(train_bpe(corpus_lines[:2000], 600))


@pytest.fixture(scope="module")
def tokenizers(english_bpe):
    """Of each kind one that knows all scripts; of byte-level BPE one more that knows English alone."""
    texts = [*SPACED.values(), *UNSPACED.values(), *ENGLISH]
    letters = sorted({letter for text in texts for letter in text.lower() if not letter.isspace()})
    return {
        "English BPE": english_bpe,
        "BPE": ByteBPETokenizer(train_bpe(texts * 3, 1500, hard_vocab_limit=False)),
        "SentencePiece": SentencePieceTokenizer(train_tokenizer(texts * 9, 900, hard_vocab_limit=False)),
        "with accents": SentencePieceTokenizer(
            train_tokenizer(texts * 9, 900, hard_vocab_limit=False, keep_accents=True)
        ),
        "WordPiece": wordpiece(*letters, *("##" + letter for letter in letters), "the", "##re", keep_accents=True),
    }


KINDS = ("English BPE", "BPE", "SentencePiece", "with accents", "WordPiece")


def words_of(tokenizer, text):
    """The text that each word of one row covers, without the white space around it."""
    ids, _, offsets = tokenizer.encode_with_offsets([text])
    begins = np.flatnonzero(MaskingVocabulary.of(tokenizer).words_begin(ids[None])[0])
    edges = sorted({0, *begins.tolist(), len(ids)})
    spans = [(offsets[one, 0], offsets[one:end, 1].max()) for one, end in itertools.pairwise(edges)]
    return [text[begin:end].strip() for begin, end in spans]


@pytest.mark.parametrize("kind", KINDS)
def test_white_space_alone_ends_words_where_a_script_has_it(tokenizers, kind):
    for script, text in SPACED.items():
        if "Sentence" in kind or "accents" in kind:
            # SentencePiece's normalisation makes a blank of it.
            text = text.replace("\u200c", " ")
        assert [word for word in words_of(tokenizers[kind], text) if word] == text.split(), script


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_is_a_word_where_a_script_has_no_white_space(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for script, text in UNSPACED.items():
        ids, words = tokenizer.encode(text), words_of(tokenizer, text)
        if kind == "English BPE":
            assert words == list(text), script
            continue
        # Tokens of BPE may hold a part of a character.
        whole = sum(is_text(tokenizer, one) for one in ids) if kind == "BPE" else len(ids)
        assert whole <= len(words) <= len(ids), script


def is_text(tokenizer, number):
    try:
        return bool(tokenizer.piece_bytes[number].decode())
    except UnicodeDecodeError:
        return False


def test_byte_pieces_of_one_character_are_one_word(corpus_lines):
    """Characters that the vocabulary lacks are their UTF-8 bytes there."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus_lines[:500]), model_writer=model, vocab_size=600, byte_fallback=True,
        hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=CONTROL_PIECES, minloglevel=2
    )  # fmt: skip
    tokenizer = SentencePieceTokenizer(model.getvalue())
    for text in ("the na\u0436ve cat", "a \u0436\u0436 \U0001f600 cat"):
        ids = np.array([tokenizer.encode(text)])
        assert sum(tokenizer.pieces[one].startswith("<0x") for one in ids[0]) >= 2
        assert MaskingVocabulary.of(tokenizer).words_begin(ids)[0].sum() == len(text.split())


MIXED = st.lists(st.sampled_from([*" ,1aé中國ไທខမ་が한я。👍\n", " the", "中文 ", "ab", "\u0301"]), max_size=25).map(
    "".join
)


@given(text=MIXED)
def test_mixed_text_begins_words_at_and_after_characters_of_unspaced_scripts(english_bpe, text):
    ids = english_bpe.encode_batch([text])[0]
    begins = MaskingVocabulary.of(english_bpe).words_begin(ids[None])[0]
    starts, at = {}, 0
    for place, character in enumerate(text):
        starts[at] = place
        at += len(character.encode())
    at = 0
    for token, begin in zip(ids, begins):
        expected, place = bool(english_bpe.word_starts[token]), starts.get(at)
        if place is not None:
            near = text[max(place - 1, 0) : place + 1]
            expected |= any(unspaced_table()[ord(one)] for one in near)
        assert begin == expected, (text, at)
        at += len(english_bpe.piece_bytes[token])


def masked(tokenizer, text, rows=400):
    """Positions that are predicted in many rows of one text: bool [rows, tokens]."""
    ids = tokenizer.encode_batch([text])[0]
    row = np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32)
    rows, lengths = np.tile(row, (rows, 1)), np.full(rows, len(row))
    vocabulary = MaskingVocabulary.of(tokenizer)
    _, positions, _, counts = mask_examples(
        rows, lengths, derive(1, np.arange(len(rows))), MaskingRule(20, 0.15), vocabulary
    )
    taken = np.zeros(rows.shape, bool)
    for one, places, count in zip(taken, positions, counts):
        one[places[:count]] = True
    return taken, vocabulary.words_begin(row[None])[0]


@pytest.mark.parametrize("script", ["Chinese", "Thai", "Khmer"])
def test_text_without_blanks_is_masked_in_every_row_and_everywhere_alike(english_bpe, script):
    taken, begins = masked(english_bpe, UNSPACED[script])
    budget = round(0.15 * taken.shape[1])
    assert taken.any(axis=1).all()
    # A character has up to four bytes here, so that a budget may end with up to three over.
    assert budget - 2 <= taken.sum(axis=1).mean() <= budget
    # Of 400 rows, each character is as likely as the next: five standard errors.
    share = taken[:, np.flatnonzero(begins)[1:-1]].mean(axis=0)[3:-3]
    assert np.abs(share - share.mean()).max() < 5 * np.sqrt(share.mean() / 400)
