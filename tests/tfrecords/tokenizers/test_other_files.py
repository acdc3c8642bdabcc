"""What other people's files next to a vocabulary say is followed as in the `tokenizers` library, or refused by name."""

import json
import shutil

import numpy as np
import pytest

from tests.tfrecords.tokenizers.other_files import PARTS, ROLES, WORDS, draw, library_wordpiece, tokenizers
from tests.tfrecords.tokenizers.twins import assert_stays_the_same, assert_twins, changed, rows_of
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.characters import ITSELF, PAGE, CharacterRules, character_table
from tfrecords.tokenizers.loading import load_tokenizer, tokenizer_in
from tfrecords.tokenizers.vocabularies.adding import add_words
from tfrecords.tokenizers.vocabularies.comparing import carry_over, difference
from tfrecords.tokenizers.vocabularies.pruning import prune_tokenizer
from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer

BATCH = [
    *("", "a [E1]", "[E1][e1]x", "Covid19x COVİD19", "New  York new york", "İ [E1]İx"),
    *map("x{}[E1]b".format, PARTS),
]
INVISIBLE = "\u200b\u200d\ufeff\uf0b7\U000f0000\x01\u0301\u1734"


def framed(tokenizer, first, second=None):
    """The ids and segments of a row."""
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id]
    if second is None:
        return ids, [0] * len(ids)
    ids += [tokenizer.sep_id] * (tokenizer.separators_between - 1)
    return [*ids, *second, tokenizer.sep_id], [0] * len(ids) + [tokenizer.second_segment_id] * (len(second) + 1)


def compare(seed, folder):
    """Returns whether a drawn folder is read; its tokenizer is then the library's."""
    theirs, texts = draw(seed, folder)
    try:
        ours = tokenizer_in(folder)
    except UnknownTokenizer as error:
        assert str(folder) in str(error), seed
        return False
    rows = rows_of(ours, texts)
    for text, (ids, offsets) in zip(texts, rows):
        found = theirs.encode(text, add_special_tokens=False)
        assert ids == found.ids, (seed, text, [ours.pieces[one] for one in ids], found.tokens)
        # Of composed text (NFC), the library names the first of the characters alone.
        if ours.kind == "bpe" and not ours.rules.compose:
            assert offsets == found.offsets, (seed, text)
        if ours.kind == "wordpiece":
            parts, others = (
                [text[begin:end].rstrip(INVISIBLE) for begin, end in both] for both in (offsets, found.offsets)
            )
            assert parts == others, (seed, text)
    if theirs.post_processor is not None:
        pairs = [((texts[0],), framed(ours, rows[0][0])), (texts[:2], framed(ours, rows[0][0], rows[1][0]))]
        for pair, expected in pairs:
            found = theirs.encode(*pair)
            # RobertaProcessing's own segments are all 0.
            assert (found.ids, found.type_ids) == expected, seed
    assert_twins(ours, texts, offsets=ours.kind == "wordpiece")
    assert_stays_the_same(ours, folder, texts, published=False)
    return True


def test_drawn_folders_are_read_as_the_library_reads_them_in_python_and_graph(tmp_path):
    read = 0
    # In the last two, a blank at the end of a text is a token.
    for seed in (*range(40), 74, 106):
        (tmp_path / str(seed)).mkdir()
        read += compare(seed, tmp_path / str(seed))
    assert read >= 12


def marked(folder, **flags):
    """Writes a lower-casing WordPiece tokenizer.json with added tokens."""
    theirs = library_wordpiece(dict.fromkeys([*ROLES, *WORDS, *"bdefghi"]), **flags)
    theirs.add_special_tokens([*ROLES, "[E1]"])
    theirs.add_tokens(["covid19", "New York", "hello"])
    theirs.save(str(folder / "tokenizer.json"))


def test_a_tokenizer_of_other_rules_stays_the_same_wherever_it_goes(tmp_path):
    marked(tmp_path, handle_chinese_chars=False)
    ours = tokenizer_in(tmp_path)
    assert_stays_the_same(ours, tmp_path, BATCH)
    assert not difference(ours, load_tokenizer(tmp_path / "own"))
    # It lower-cases all but its added tokens already.
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert rows_of(tokenizer_in(tmp_path), BATCH) == rows_of(ours, BATCH)
    larger = add_words(ours, ["fever"])
    assert rows_of(larger, BATCH) == rows_of(ours, BATCH) and larger.encode("fever") == [ours.vocab_size]
    assert carry_over(larger, ours).kept == ours.vocab_size
    small, kept = prune_tokenizer(ours, np.ones(ours.vocab_size, np.int64))
    assert kept[small.encode("[E1]")].tolist() == ours.encode("[E1]") and ours.encode("[E1]")[0] in ours.special_ids
    (tmp_path / "bare").mkdir()
    shutil.copy(tmp_path / "own" / "vocab.txt", tmp_path / "bare")
    assert difference(ours, load_tokenizer(tmp_path / "bare", True)) == "other rules or merges"


@pytest.mark.parametrize("flags, end", [((True, True, True, True), 0x110000), ((False, True, False, True), 0x3000)])
def test_all_characters_are_those_of_the_library(flags, end):
    names = ("lowercase", "strip_accents", "clean_text", "handle_chinese_chars")
    codes = [code for code in range(1, end) if not 0xD800 <= code < 0xE000]
    characters = np.array(codes)
    pages, rows, expansions = character_table(CharacterRules(*flags, of_library=True), "normal")
    found = expansions[rows[pages[characters // PAGE] * PAGE + characters % PAGE]]
    found = np.where(found == ITSELF, characters[:, None], found)
    # A digit between two, so that NFD sees each alone.
    theirs = tokenizers.normalizers.BertNormalizer(**dict(zip(names, flags))).normalize_str("7".join(map(chr, codes)))
    assert "7".join("".join(map(chr, row[row > 0])) for row in found) == theirs


def test_private_characters_and_long_words_go_by_what_the_folder_is(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*ROLES, "good", "x", "##x"]))
    long, text = "x" * 101, "\uf0b7 good"
    bare = tokenizer_in(tmp_path)
    assert bare.encode(text) == [1, 5] and bare.encode(long) == [6] + [7] * 100
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    ours = tokenizer_in(tmp_path)
    assert ours.encode(text) == [5] and ours.encode(long) == [1]
    # It is the same vocabulary, and records made with it stay of use.
    assert ours.sha256 == bare.sha256 and not difference(ours, bare)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_xlm-roberta_config.json"])
@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "bpe"])
def test_sentence_transformers_lower_case_comes_before_any_tokenizer(tmp_path, kind, name):
    if kind == "bpe":
        (tmp_path / "tokenizer.json").write_bytes(train_bpe(["a paris İ is ΟΔΟΣ"] * 3, 300, hard_vocab_limit=False))
    elif kind == "sentencepiece":
        lines = ["in Paris it is a fine Day", "Paris is fine", "οδος ΟΔΟΣ"] * 20
        model = train_tokenizer(lines, 60, hard_vocab_limit=False, lower_case=False)
        (tmp_path / "spiece.model").write_bytes(model)
    else:
        (tmp_path / "vocab.txt").write_text("\n".join([*ROLES, "Paris", "paris", "is", "οδος", "i", "##s"]))
    plain = tokenizer_in(tmp_path)
    (tmp_path / name).write_text('{"max_seq_length": 8, "do_lower_case": true}')
    ours = tokenizer_in(tmp_path)
    batch = ["Paris Is", "paris is", "İs ΟΔΟΣ Paris", "İİ", ""]
    # Without a final sigma, as by the library's Lowercase.
    lower = ["paris is", "paris is", "i\u0307s οδοσ paris", "i\u0307i\u0307", ""]
    assert [ids for ids, _ in rows_of(ours, batch)] == [plain.encode(text) for text in lower]
    assert ours.sha256 != plain.sha256 and difference(ours, plain)
    assert_twins(ours, batch)
    assert_stays_the_same(ours, tmp_path, ["Paris"], published=False)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_a_byte_order_mark_is_passed_over(tmp_path, name):
    marked(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys([*ROLES, *WORDS, *"bdefghi"])))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    before = tokenizer_in(tmp_path)
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    assert tokenizer_in(tmp_path).sha256 == before.sha256
    if name == "vocab.txt":
        assert load_tokenizer(tmp_path / name).sha256 == before.sha256


def test_unknown_keys_are_warned_of_and_other_markers_of_byte_bpe_are_cut(tmp_path, caplog):
    file = train_bpe(["a paris is"] * 3, 300, hard_vocab_limit=False)
    token = {"id": 400, "content": "[E1]", "special": True, "normalized": False, "single_word": False}
    token |= {"lstrip": False, "rstrip": False}
    (tmp_path / "tokenizer.json").write_bytes(changed(file, added_tokens=[*json.loads(file)["added_tokens"], token]))
    (tmp_path / "tokenizer_config.json").write_text('{"new_rule": 3, "legacy": true, "name_or_path": "x"}')
    with caplog.at_level("WARNING"):
        ours = tokenizer_in(tmp_path)
    assert "tokenizer_config.json', new_rule=3 is unknown here and not followed" in caplog.text
    assert 400 in ours.encode("a [E1]") and ours.mask_id not in ours.encode("a <mask>")
    # What the library looks for in a text as it is would be lost in one that is lower-cased first.
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(UnknownTokenizer, match=r"says do_lower_case and adds '.E1.'"):
        tokenizer_in(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"additional_special_tokens": ["hello"]}')
    with pytest.raises(UnknownTokenizer, match=r"adds the tokens hello, which .* has not"):
        tokenizer_in(tmp_path)


NOT_FOLLOWED = r"""
    tokenizer_config.json   | {"padding_side": "left"}                        | padding_side=left
    tokenizer_config.json   | {"auto_map": {"AutoTokenizer": ["own.py"]}}     | auto_map=
    tokenizer_config.json   | {"never_split": ["x"]}                          | never_split=
    tokenizer_config.json   | {"do_lower_case": 0}                            | do_lower_case=0
    tokenizer_config.json   | {"clean_text": 0}                               | clean_text=0
    special_tokens_map.json | {"cls_token": "<cls>"}                          | has no line <cls>
    added_tokens.json       | {"x9": 3}                                       | adds 'x9' as 3, which is '\[SEP\]'
    tokenizer.json          | {"version": "2.0"}                              | version=2.0
    tokenizer.json          | {"normalizer": {"type": "BertNormalizer", "clean_text": 0}} | clean_text=0
    tokenizer.json          | {"filters": []}                                 | filters=\[\]
    tokenizer.json          | {"model": {"type": "WordLevel", "vocab": {}}}   | holds a WordLevel tokenizer
"""


@pytest.mark.parametrize("row", NOT_FOLLOWED.strip().splitlines())
def test_what_is_not_followed_is_refused_by_its_name(tmp_path, row):
    name, values, message = (cell.strip() for cell in row.split(" |"))
    marked(tmp_path)
    if name == "tokenizer.json":
        values = changed((tmp_path / name).read_bytes(), **json.loads(values)).decode()
    (tmp_path / name).write_text(values)
    with pytest.raises(UnknownTokenizer, match=message):
        tokenizer_in(tmp_path)
