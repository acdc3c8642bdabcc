"""BPE of Gemma's form (mmBERT) and of Llama 3's (EuroBERT): ids and places of the `tokenizers` library."""

import json

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.refusals import refused
from tests.tfrecords.tokenizers.test_xlm import LINES, ODD
from tests.tfrecords.tokenizers.twins import HARD_TEXTS, assert_stays_the_same, rows_of
from tfrecords.reading.framing import Framer, encode
from tfrecords.tokenizers.loading import tokenizer_in
from tfrecords.tokenizers.vocabularies.adding import add_words
from tfrecords.tokenizers.vocabularies.pruning import prune_tokenizer

LLAMA = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def gemma():
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>"]
    library = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    # Characters of the first lines alone are pieces; others are bytes.
    own = {"special_tokens": [*special, *(f"<0x{byte:02X}>" for byte in range(256))], "show_progress": False}
    library.train_from_iterator(LINES[:5] * 9, trainers.BpeTrainer(vocab_size=600, **own))
    values = json.loads(library.to_str())
    values["added_tokens"] = values["added_tokens"][: len(special)]
    library = Tokenizer.from_str(json.dumps(values))
    texts = [AddedToken(text, normalized=False) for text in ("\n", "\n\n", "▁▁", "<table>", "<s>", "</s>")]
    library.add_tokens(texts)
    library.post_processor = template(library, "<bos>", "<eos>")
    return library


def llama():
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "[PAD]"]
    library = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer, library.decoder = pre_tokenizers.Sequence([split, level]), decoders.ByteLevel()
    own = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    library.train_from_iterator(LINES * 5, trainers.BpeTrainer(vocab_size=600, **own))
    library.add_special_tokens(special)
    library.post_processor = template(library, *special[:2])
    return library


def template(library, cls, sep):
    ends = [(name, library.token_to_id(name)) for name in (cls, sep)]
    return processors.TemplateProcessing(f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1", ends)


@pytest.fixture(scope="module", params=[gemma, llama])
def both(request, tmp_path_factory):
    """The library's tokenizer, and a folder with it."""
    library, folder = request.param(), tmp_path_factory.mktemp(request.param.__name__)
    library.save(str(folder / "tokenizer.json"))
    roles = {"mask_token": "<|mask|>"} if request.param is llama else {}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"} | roles))
    return library, folder


TEXTS = [*LINES, *(text for text in [*ODD, *HARD_TEXTS[:-2]] if "<mask>" not in text)]
TEXTS += ["a\n\nb\n c<table> d<s>e</s>", "  x  ▁▁ y\t\n"]


def test_ids_and_places_are_those_of_the_library(both):
    library, folder = both
    found = library.encode_batch(TEXTS, add_special_tokens=False)
    assert rows_of(tokenizer_in(folder), TEXTS) == [(one.ids, one.offsets) for one in found]


def test_rows_are_framed_by_its_template_and_special_strings_are_text(both):
    library, folder = both
    ours = tokenizer_in(folder)
    rows = Framer(ours, 200).pair(encode(ours, LINES[:1]), encode(ours, LINES[3:4]))
    theirs = library.encode(LINES[0], LINES[3])
    assert (rows.input_ids.to_list(), rows.segment_ids.to_list()) == ([theirs.ids], [theirs.type_ids])
    mask = ours.id_to_piece(ours.mask_id)
    assert ours.mask_id not in ours.encode(f"a {mask} b") and ours.mask_id in ours.special_ids
    assert ours.decode(ours.encode(f"a {mask} b ж")).strip() == f"a {mask} b ж"


def test_every_form_of_its_files_is_the_same_tokenizer(both, tmp_path):
    assert_stays_the_same(tokenizer_in(both[1]), tmp_path, LINES, published=False)


def test_what_it_cannot_do_is_refused_or_warned_of(both, tmp_path, caplog):
    ours = tokenizer_in(both[1])
    with refused("no operations in a SavedModel; export with --inputs=ids"):
        ours.in_graph()
    values = json.loads((both[1] / "tokenizer.json").read_text())
    for change, message in [
        ({"model": values["model"] | {"dropout": 0.1}}, "dropout=0.1"),
        ({"normalizer": {"type": "Lowercase"}}, "normalizer Lowercase"),
        ({"post_processor": values["post_processor"] | {"single": []}}, "does not frame a text"),
    ]:
        (tmp_path / "tokenizer.json").write_text(json.dumps(values | change))
        (tmp_path / "tokenizer_config.json").write_bytes((both[1] / "tokenizer_config.json").read_bytes())
        with refused(message):
            tokenizer_in(tmp_path)
    values["added_tokens"].append(values["added_tokens"][0] | {"content": "[E1]", "id": 4999})
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    tokenizer_in(tmp_path)
    assert "the special tokens '[E1]' in a text are text here, and tokens in transformers" in caplog.text
    (tmp_path / "added_tokens.json").write_text('{"[new]": 5000}')
    with refused(r"adds the tokens \[new\]"):
        tokenizer_in(tmp_path)


def test_its_vocabulary_is_neither_cut_nor_enlarged(both):
    ours = tokenizer_in(both[1])
    with refused("is not changed here"):
        prune_tokenizer(ours, [0] * ours.vocab_size, 300)
    with refused("is not changed here"):
        add_words(ours, ["Menschen"])
