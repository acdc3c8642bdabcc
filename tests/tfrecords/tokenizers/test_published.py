"""Vocabularies as others leave them in a folder are read, cased as they are, to the ids that others give."""

import json
import re
import shutil

import pytest

from tests.refusals import refused
from tests.tfrecords.tokenizers.other_files import ROLES, models, normalizers, pre_tokenizers, tokenizers
from tfrecords.tokenizers.loading import load_tokenizer, own_sha256, tokenizer_in

WORDS = ["Hello", "World", "hello", "world", "##s", "the", "The", "a", "##b", "!", ","]


def write_vocabulary(folder, pieces=WORDS, name="vocab.txt"):
    (folder / name).write_text("\n".join(ROLES + pieces) + "\n")


@pytest.mark.parametrize(
    "special, lower",
    [
        (["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], [normalizers.Lowercase()]),
        # XLNet's, which is cased.
        (["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"], []),
    ],
)
def test_an_albert_or_xlnet_of_the_tokenizers_library_gives_its_ids(tmp_path, corpus_lines, special, lower):
    theirs = tokenizers.Tokenizer(models.Unigram())
    blanks = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    theirs.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), *lower, blanks])
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False, max_piece_length=8
    )
    theirs.train_from_iterator(corpus_lines[:600], trainer)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizer_in(tmp_path)
    assert (ours.kind, ours.lower_case) == ("sentencepiece", bool(lower))
    if not lower:
        said = {"tokenizer_class": "XLNetTokenizer", "keep_accents": True}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
        assert not tokenizer_in(tmp_path).keep_accents
    found = [ours.pieces[getattr(ours, f"{role}_id")] for role in ("cls", "sep", "mask", "pad", "unk")]
    assert found == [*("[CLS] [SEP] [MASK]" if lower else "<cls> <sep> <mask>").split(), "<pad>", "<unk>"]
    assert ours.special_ids.tolist() == list(range(len(special)))
    same = [
        ours.encode(line) == theirs.encode(line, add_special_tokens=False).ids
        # ALBERT's own rules: a comma after a digit is a piece, doubled quotes are one sign. Runs have ties of scores.
        for line in corpus_lines[:600]
        if line.strip() and not re.search(r"[0-9]|``|''|(.)\1\1\1", line)
    ]
    assert len(same) > 100 and all(same)


def test_casing_is_said_by_flag_then_configuration_then_the_pieces(tmp_path):
    cased, lower = (WORDS, ["Привет", "мир", "##ы"]), (["hello", "world", "##s"], ["привет", "мир", "中", "\u211d"])
    for number, words in enumerate(cased + lower):
        write_vocabulary(tmp_path, words)
        assert tokenizer_in(tmp_path).lower_case == (number > 1)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not tokenizer_in(tmp_path).lower_case
    assert not load_tokenizer(tmp_path / "vocab.txt").lower_case
    assert tokenizer_in(tmp_path, lower_case=True).lower_case


TOKEN = {"content": "covid19", "special": False}


@pytest.mark.parametrize(
    "name, content",
    [
        ("added_tokens.json", {"covid19": 16}),
        ("tokenizer_config.json", {"do_lower_case": False, "added_tokens_decoder": {"16": TOKEN}}),
    ],
)
def test_tokens_added_beside_a_vocabulary_are_cut_out_of_texts(tmp_path, name, content):
    write_vocabulary(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    assert tokenizer_in(tmp_path).encode("the covid19world") == [10, 16, 8]
    (tmp_path / "special_tokens_map.json").write_text('{"additional_special_tokens": ["covid19"]}')
    assert tokenizer_in(tmp_path).encode("covid19") == [16]
    write_vocabulary(tmp_path, [*WORDS, "covid19"])
    (tmp_path / "special_tokens_map.json").unlink()
    assert tokenizer_in(tmp_path).encode("covid19") == [16]


def test_a_preset_of_keras_hub(tmp_path):
    (tmp_path / "assets" / "tokenizer").mkdir(parents=True)
    write_vocabulary(tmp_path, name="assets/tokenizer/vocabulary.txt")
    description = {"module": "keras_hub", "class_name": "BertTokenizer", "config": {"lowercase": True}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    tokenizer = tokenizer_in(tmp_path)
    assert tokenizer.lower_case and tokenizer.vocab_size == len(ROLES + WORDS)


def test_folders_of_our_own_know_their_tokenizer(tmp_path):
    write_vocabulary(tmp_path)
    tokenizer = load_tokenizer(tmp_path / "vocab.txt", lower_case=False)
    assert own_sha256(tmp_path) is None
    tokenizer.save(tmp_path / "own")
    assert tokenizer_in(tmp_path / "own").sha256 == own_sha256(tmp_path / "own") == tokenizer.sha256
    for read in (tokenizer_in, load_tokenizer):
        assert not read(tmp_path / "own", lower_case=False).lower_case
        with refused("saved with lower_case=False; leave out --lower_case"):
            read(tmp_path / "own", lower_case=True)


def test_none_several_and_unknown_ones(tmp_path):
    assert tokenizer_in(tmp_path) is None
    with refused("holds no tokenizer"):
        load_tokenizer(tmp_path)
    write_vocabulary(tmp_path, name="vocab_chinese.txt")
    assert tokenizer_in(tmp_path).kind == "wordpiece"
    shutil.copy(tmp_path / "vocab_chinese.txt", tmp_path / "old_vocab.txt")
    with refused(r"holds old_vocab\.txt, vocab_chinese\.txt; say which"):
        tokenizer_in(tmp_path)
    tokenizers.Tokenizer(models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with refused("BPE tokenizer of characters; known is the BPE of bytes"):
        tokenizer_in(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": []}}')
    with refused("copy it again"):
        tokenizer_in(tmp_path)
