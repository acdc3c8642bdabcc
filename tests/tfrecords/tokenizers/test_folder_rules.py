"""Of two files that say a rule of a tokenizer the one that transformers reads decides; a difference is named."""

import itertools
import json
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from serving.lite.rows import Framer as LiteFramer
from tests.refusals import refused
from tests.tfrecords.tokenizers.other_files import library_wordpiece, tokenizers
from tfrecords.reading.framing import Framer
from tfrecords.tokenizers.loading import load_tokenizer, tokenizer_in
from tfrecords.tokenizers.vocabularies.training import train_bpe

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Café", "café", "cafe", "Cafe", "中", "国", "中国"]
TEXT = "Café 中国"
BERT, OF_FILE = {"tokenizer_class": "BertTokenizer"}, {"tokenizer_class": "PreTrainedTokenizerFast"}


def write(folder, config, model=None, vocabulary=True, frames=True, first=0, **normalizer):
    """Writes a folder; of a `normalizer`, with a tokenizer.json."""
    if vocabulary:
        (folder / "vocab.txt").write_text("\n".join(PIECES))
    if normalizer:
        theirs = library_wordpiece(PIECES, **normalizer)
        if frames:
            theirs.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        own = tokenizers.normalizers
        theirs.normalizer = own.Sequence([own.Lowercase()] * first + [theirs.normalizer])
        theirs.save(str(folder / "tokenizer.json"))
    for name, values in (("tokenizer_config.json", config), ("config.json", model)):
        if values is not None:
            (folder / name).write_text(json.dumps(values))


# tokenizer_config.json, the normalizer, the pieces of transformers 5.23 of the same files, and the warning.
CHOICES = """
    BERT | {} | cafe 中 国 |
    {} | {} | cafe 中 国 |
    BERT {"do_lower_case": false} | {} | Café 中 国 |
    BERT {"do_lower_case": true} | {} | cafe 中 国 |
    BERT {"do_lower_case": true, "strip_accents": false} | {} | café 中 国 |
    BERT {"do_lower_case": true, "tokenize_chinese_chars": false} | {} | cafe 中国 |
    BERT | {"lowercase": false} | cafe 中 国 | do_lower_case is False by .* not stated .* takes True
    BERT {"keep_accents": true} | {"lowercase": true} | cafe 中 国 |
    BERT {"do_lower_case": true} | {"lowercase": true, "handle_chinese_chars": false} | cafe 中 国 | tokenize_chinese
    BERT {"do_lower_case": false} | {"lowercase": false, "strip_accents": true} | Café 中 国 | strip_accents is True
    OF_FILE | {"lowercase": false} | Café 中 国 |
    OF_FILE | {"lowercase": false, "first": 1} | café 中 国 |
    BERT {"do_lower_case": false} | {"lowercase": false, "first": 1} | Café 中 国 |
    OF_FILE {"do_lower_case": true} | {"lowercase": false} | Café 中 国 | do_lower_case is False by .* True by
    {} | {"lowercase": false} | Café 中 国 |
    null | {"lowercase": false} | Café 中 国 |
"""


@pytest.mark.parametrize("row", CHOICES.strip().splitlines())
def test_the_files_are_chosen_between_as_in_transformers(tmp_path, caplog, row):
    config, normalizer, pieces, warning = (cell.strip() for cell in row.split("|"))
    name = re.match("[A-Z_]*", config)[0]
    own = json.loads(config.removeprefix(name) or "{}")
    write(tmp_path, {"BERT": BERT, "OF_FILE": OF_FILE}[name] | own if name else own, **json.loads(normalizer))
    with caplog.at_level("WARNING"):
        ours = tokenizer_in(tmp_path)
    assert [ours.pieces[one] for one in ours.encode(TEXT)] == pieces.split()
    assert re.search(warning, caplog.text) if warning else not caplog.text


@pytest.mark.parametrize("config", [None, {}, BERT])
def test_a_class_that_config_json_names_is_followed_or_refused(tmp_path, config):
    write(tmp_path, config, {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"})
    with refused(r"config.json' says tokenizer_class=BertJapaneseTokenizer, which is not"):
        load_tokenizer(tmp_path)
    write(tmp_path, config, {"model_type": "bert", "tokenizer_class": "BertTokenizerFast"})
    assert load_tokenizer(tmp_path).lower_case == (config is not None)


def test_pieces_of_sentencepiece_are_no_wordpiece(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁", "##s", "▁cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    with refused(r"vocab.txt' holds the pieces of a SentencePiece vocabulary"):
        load_tokenizer(tmp_path)


def test_pairs_are_cut_as_by_the_file_s_own_library(tmp_path):
    write(tmp_path, BERT, lowercase=True)
    ours, theirs = load_tokenizer(tmp_path), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rules = {name: getattr(ours, name) for name in ("cls_id", "sep_id", "separators_between", "second_segment_id")}
    lite = LiteFramer(SimpleNamespace(**rules, odd_to_longer=ours.odd_to_longer), 0)
    sizes = list(itertools.product(range(9), range(9)))
    given = [[np.full(size[side], piece, np.int32) for size in sizes] for side, piece in ((0, 7), (1, 9))]
    for length in (8, 9, 10):
        theirs.enable_truncation(length)
        right = [theirs.encode("cafe " * first, "中" * second) for first, second in sizes]
        rows = Framer(ours, length).pair(
            *(tf.ragged.constant([row.tolist() for row in side], tf.int32) for side in given)
        )
        assert rows.input_ids.to_list() == [one.ids for one in right]
        assert rows.segment_ids.to_list() == [one.type_ids for one in right]
        lite.max_seq_length = length
        for first, second, one in zip(*given, right):
            row = lite.frame(first, second)
            assert row["input_ids"].tolist() == one.ids and row["segment_ids"].tolist() == one.type_ids
    ours.save(tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").odd_to_longer and pickle.loads(pickle.dumps(ours)).odd_to_longer


def test_second_texts_have_segment_0_where_the_model_takes_no_segments(tmp_path):
    # Version 5 of transformers, whose files have a "backend", gives second texts of this class segment 0.
    for config, segment in ((BERT | {"backend": "tokenizers"}, 1), (OF_FILE, 1), (OF_FILE | {"backend": "x"}, 0)):
        write(tmp_path, config, lowercase=True)
        assert load_tokenizer(tmp_path).second_segment_id == segment
    write(tmp_path, BERT | {"model_input_names": ["input_ids", "attention_mask"]})
    ours = load_tokenizer(tmp_path)
    assert ours.second_segment_id == 0
    row = Framer(ours.with_cls_last(True), 9).single(tf.ragged.constant([[5]], tf.int32))
    assert row.segment_ids.to_list() == [[0, 0, 0]]
    ours.save(tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").second_segment_id == pickle.loads(pickle.dumps(ours)).second_segment_id == 0


@pytest.mark.parametrize("part, key", [("truncation", "truncation_side"), ("padding", "padding_side")])
def test_a_file_that_cuts_or_pads_on_the_left_is_refused(tmp_path, part, key):
    write(tmp_path, BERT, lowercase=True)
    values = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(values | {part: {"direction": "Left"}}))
    with refused(f"says {part} on the left"):
        load_tokenizer(tmp_path)
    # tokenizer_config.json has priority there.
    write(tmp_path, BERT | {key: "right"})
    load_tokenizer(tmp_path)


def test_the_type_of_the_model_is_its_class_where_none_is_named(tmp_path, caplog):
    write(tmp_path, {}, {"model_type": "bert"}, lowercase=False)
    assert tokenizer_in(tmp_path).lower_case and "do_lower_case is False by" in caplog.text
    assert not tokenizer_in(tmp_path, lower_case=False).lower_case
    write(tmp_path, {}, {"model_type": "roberta"}, lowercase=False)
    assert tokenizer_in(tmp_path) and "a WordPiece tokenizer, not its class's" in caplog.text


@pytest.mark.parametrize("kind", ["bert", "electra", "distilbert", "nomic_bert"])
def test_a_folder_that_names_no_class_keeps_case_with_a_warning(tmp_path, caplog, kind):
    write(tmp_path, None, {"model_type": kind}, vocabulary=False, lowercase=False)
    assert not tokenizer_in(tmp_path).lower_case and "transformers takes True of" in caplog.text


@pytest.mark.parametrize("config, warns", [(None, True), (OF_FILE, True), (BERT | {"do_lower_case": True}, False)])
def test_a_missing_post_processor_is_named_unless_the_class_frames_rows(tmp_path, caplog, config, warns):
    write(tmp_path, config, frames=False, lowercase=True)
    tokenizer_in(tmp_path)
    assert ("no post_processor frames rows" in caplog.text) == warns


# Of a model's type alone transformers rebuilds the steps, and the file is followed with a warning.
@pytest.mark.parametrize(
    "config, model, in_file, blank, warning",
    [
        ({"tokenizer_class": "RobertaTokenizer"}, None, True, False, "add_prefix_space is True by"),
        (OF_FILE, None, True, True, ""),
        (None, {"model_type": "roberta"}, False, False, ""),
        (None, {"model_type": "roberta"}, True, True, "without tokenizer_config.json, transformers takes False"),
    ],
)
def test_byte_bpe_begins_with_a_blank_as_the_class_or_the_file_says(
    tmp_path, caplog, config, model, in_file, blank, warning
):
    values = json.loads(train_bpe(["a paris is"] * 3, 300, hard_vocab_limit=False))
    values["pre_tokenizer"]["add_prefix_space"] = in_file
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    write(tmp_path, config, model, vocabulary=False)
    ours = tokenizer_in(tmp_path)
    assert ours.rules.add_prefix_space == blank and (ours.encode("paris") == ours.encode(" paris")) == blank
    assert warning in caplog.text if warning else "add_prefix_space" not in caplog.text


# As transformers 4.57 and 5.23 of the same files, which differ of one that says nothing alone.
@pytest.mark.parametrize("in_file", [True, False, None])
@pytest.mark.parametrize("of_config", [True, False, None])
def test_a_mask_token_takes_a_blank_in_as_the_configuration_or_else_the_file_says(tmp_path, caplog, of_config, in_file):
    values = json.loads(train_bpe(["a paris is"] * 3, 300, hard_vocab_limit=False))
    token = {"content": "<mask>", "lstrip": of_config}
    said = {} if of_config is None else {"added_tokens_decoder": {str(values["added_tokens"][-1]["id"]): token}}
    if in_file is None:
        said = {} if of_config is None else {"mask_token": token}
        ids = values["model"]["vocab"] | {token["content"]: token["id"] for token in values["added_tokens"]}
        (tmp_path / "vocab.json").write_text(json.dumps(ids))
        (tmp_path / "merges.txt").write_text("".join(f"{' '.join(pair)}\n" for pair in values["model"]["merges"]))
    else:
        values["added_tokens"][-1]["lstrip"] = in_file
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"} | said))
    ours = load_tokenizer(tmp_path)
    assert ("takes in the blank" in caplog.text) == (of_config is in_file is None)
    takes = next((said for said in (of_config, in_file) if said is not None), True)
    ours.save(tmp_path / "own")
    for tokenizer in (ours, load_tokenizer(tmp_path / "own")):
        assert re.split(Framer(tokenizer, 9).mask_pattern, "a <mask> is") == ["a" if takes else "a ", " is"]


@pytest.mark.parametrize("name", ["vocab.txt", "spiece.model", "tokenizer.json", "vocab.json", "merges.txt"])
def test_a_pointer_of_git_lfs_is_called_what_it_is(tmp_path, name):
    if name == "merges.txt":
        (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
    place = tmp_path / "vocab.json" if name == "merges.txt" else tmp_path / name
    for path in (tmp_path, place):
        with refused(f"{name}' is a Git LFS pointer, not the file itself"):
            load_tokenizer(path)
