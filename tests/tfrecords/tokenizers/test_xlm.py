"""XLM-RoBERTa's and CamemBERT's vocabularies: SentencePiece models with fairseq's ids, as `tokenizers` reads them."""

# ruff: noqa: RUF001
import io
import json

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.tfrecords.tokenizers.twins import assert_stays_the_same, assert_twins, ids_of
from tfrecords.reading.framing import Framer, encode
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.loading import tokenizer_in

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

# "All human beings are born free and equal in dignity and rights", in 24 scripts.
LINES = """
All human beings are born free and equal in dignity and rights.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.
Все люди рождаются свободными и равными в своём достоинстве и правах.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար՝ իրենց արժանապատվությամբ։
כָּל בְּנֵי אָדָם נוֹלְדוּ בְּנֵי חוֹרִין וְשָׁוִים בְּעֶרְכָּם.
يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.
تمام افراد بشر آزاد به دنیا می‌آیند و حیثیت و حقوق‌شان برابر است.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ, ਸ਼ਾਨ ਅਤੇ ਹੱਕਾਂ ਦੇ ਪੱਖੋਂ ਆਜ਼ਾਦ ਹੈ।
પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો જન્મથી સ્વતંત્ર હોય છે.
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులు.
ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಹುಟ್ಟಿದ್ದಾರೆ.
മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും അന്തസ്സോടും ജനിച്ചവരാണ്.
සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ
មនុស្សទាំងអស់កើតមកមានសេរីភាព
လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း
ყველა ადამიანი იბადება თავისუფალი და თანასწორი.
የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።
すべての人間は、生れながらにして自由であり、ｶﾞ①㌔
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
人人生而自由，在尊严和权利上一律平等。
""".splitlines()
ODD = [
    "", " ", "  a  b \n\t c \u3000", "Cafe\u0301 ﬁne ½ ™️ ⑨ A\u030a", "か\u3099 ᄒ\u1161 \u200bx\u200d\ufeffy",
    "e\u0323\u0302", "<s> a <mask> b </s><pad>", "a▁b ▁ c", "\u0301 x\u0301", "1234,5 … ...",
    "\0 \ufffd 👍🏽", "\r\na\u0085b\u2028c"
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    """The file as fairseq has it: ids 0 to 2 are <unk>, <s> and </s>."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3), model_writer=file, vocab_size=700, character_coverage=1.0,
        normalization_rule_name="nmt_nfkc", hard_vocab_limit=False, num_threads=1, minloglevel=2
    )  # fmt: skip
    return file.getvalue()


# By the type of model: the first pieces, and how many of the SentencePiece model's own are dropped.
FIRST = {
    "xlm-roberta": ([("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)], 3),
    "camembert": (
        [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)], 1
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=FIRST)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def theirs(model, kind):
    """As transformers/convert_slow_tokenizer.py, XLMRobertaConverter and CamembertConverter, makes it."""
    proto = model_pb2.ModelProto.FromString(model)
    first, dropped = FIRST[kind]
    pieces = [*first, *((piece.piece, piece.score) for piece in proto.pieces[dropped:]), ("<mask>", 0.0)]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3, False))
    library.normalizer = tokenizers.normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    parts = tokenizers.pre_tokenizers
    library.pre_tokenizer = parts.Sequence([parts.WhitespaceSplit(), parts.Metaspace("▁", "always")])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [(name, library.token_to_id(name)) for name in ("<s>", "</s>")]
    )
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
    library.add_special_tokens([*(name for name, _ in first), "<s>", "</s>", mask])
    return library


@pytest.fixture(scope="module")
def folder(model, theirs, kind, tmp_path_factory):
    """With the two files that such a folder has."""
    folder = tmp_path_factory.mktemp(kind)
    theirs.save(str(folder / "tokenizer.json"))
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return tokenizer_in(folder)


def test_ids_are_those_of_the_library_in_all_scripts(ours, theirs, kind):
    # The strings of special tokens in a text are text here.
    batch = [*LINES, *(text for text in ODD if "<" not in text)]
    assert ids_of(ours, batch) == [one.ids for one in theirs.encode_batch(batch, add_special_tokens=False)]
    assert not ours.lower_case and ours.keep_accents
    cls, sep = (0, 2) if kind == "xlm-roberta" else (5, 6)
    found = (ours.cls_id, ours.pad_id, ours.sep_id, ours.unk_id, ours.mask_id)
    assert found == (cls, 1, sep, 3, ours.vocab_size - 1)


def test_its_class_splits_at_blanks_whatever_its_file_says(ours, theirs, kind, tmp_path, caplog):
    values = json.loads(theirs.to_str())
    values["pre_tokenizer"] = values["pre_tokenizer"]["pretokenizers"][1]
    values["normalizer"] = {"type": "Sequence", "normalizers": [values["normalizer"], {"type": "Lowercase"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    # A key of other classes.
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": false}')
    batch = ["", " ", "  a  b \n\t c ", "à"]
    assert ids_of(tokenizer_in(tmp_path), batch) == ids_of(ours, batch)
    assert "the normalizer Lowercase is followed, as in transformers 4" in caplog.text


def test_the_graph_gives_the_same_ids_and_offsets(ours):
    assert_twins(ours, LINES + ODD)


def test_pairs_have_two_separators_and_one_segment(ours, theirs):
    rows = Framer(ours, 200).pair(encode(ours, LINES[1:2]), encode(ours, LINES[3:4]))
    assert rows.input_ids.to_list() == [theirs.encode(LINES[1], LINES[3]).ids]
    assert set(rows.segment_ids.to_list()[0]) == {0}


def test_every_form_of_its_files_is_the_same_tokenizer(ours, folder, tmp_path):
    assert_stays_the_same(ours, tmp_path, LINES)
    for name in ("sentencepiece.bpe.model", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    bare = tokenizer_in(tmp_path)
    assert bare.sha256 == ours.sha256 and ids_of(bare, LINES) == ids_of(ours, LINES) and bare.separators_between == 2


def test_the_steps_of_newer_files_are_followed(ours, folder, tmp_path):
    values = json.loads((folder / "tokenizer.json").read_text())
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    one = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    values["normalizer"] = {"type": "Sequence", "normalizers": [values["normalizer"], strip, one]}
    values["pre_tokenizer"] = values["pre_tokenizer"]["pretokenizers"][1]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    batch = [*LINES, "", " ", " a  b ", "a\n", "a \u3000 b"]
    found = ids_of(tokenizer_in(tmp_path), batch)
    assert found == [one.ids for one in library.encode_batch(batch, add_special_tokens=False)]
    values["normalizer"]["normalizers"][1]["strip_left"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(UnknownTokenizer, match=r"has strip_left=true \(normalizer Strip\)"):
        tokenizer_in(tmp_path)
