"""Targets that read files of others: tokenizers, weights, records, configurations and settings."""

import dataclasses
import json
import struct
from pathlib import Path

import tensorflow as tf

from albert_tf.checkpoints.sentence_folders import read_modules, read_settings
from albert_tf.checkpoints.tensor_files import read_tensors
from albert_tf.config import AlbertConfig
from albert_tf.run_evaluation import EvaluationSettings
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.pretraining_settings import PretrainingSettings
from serving.export_settings import ExportSettings
from serving.score.__main__ import ScoringSettings as ScoreSettings
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.settings import flag_name, read_settings_file, settings_of
from tfrecords.create_pretraining_data import CreateSettings
from tfrecords.reader import read_examples
from tfrecords.reading.manifest import FORMAT_VERSION, MANIFEST, SPLITS
from tfrecords.tokenizers.loading import load_tokenizer

FOLDERS = (UserError,)
_TEXTS = ("", "The cat sat, 12 times.", "ÀÉ 你好 𝄞\0\t [MASK] <mask>", "a" * 200)
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "albert_tokenizer.json"),
)
TOKENIZER_WORDS = (
    *_TOKENIZER_FILES,
    *("model", "type", "vocab", "merges", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"),
    *("BPE", "WordPiece", "Unigram", "WordLevel", "BertNormalizer", "Sequence", "normalizers", "pretokenizers", "NFC"),
    *("Lowercase", "StripAccents", "Replace", "Prepend", "Precompiled", "precompiled_charsmap", "Strip", "NFKC"),
    *("BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "Split", "Digits", "Punctuation", "pattern", "Regex"),
    *("TemplateProcessing", "BertProcessing", "RobertaProcessing", "single", "pair", "special_tokens", "ids", "tokens"),
    *("unk_token", "unk_id", "continuing_subword_prefix", "max_input_chars_per_word", "byte_fallback", "fuse_unk"),
    *("id", "content", "special", "lstrip", "rstrip", "normalized", "single_word", "truncation", "padding"),
    *("do_lower_case", "strip_accents", "tokenizer_class", "BertTokenizer", "AlbertTokenizer", "RobertaTokenizer"),
    *("cls_token", "sep_token", "mask_token", "pad_token", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]"),
)
_CONFIGURATION_FILES = (
    *("config.json", "albert_config.json", "bert_config.json", "xlnet_config.json", "modules.json"),
    *("sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json"),
)
CONFIGURATION_WORDS = (
    *_CONFIGURATION_FILES,
    *("model_type", "albert", "bert", "roberta", "xlnet", "mpnet", "electra", "architectures", "auto_map"),
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "embedding_size"),
    *("num_hidden_groups", "inner_group_num", "hidden_act", "gelu", "gelu_new", "position_offset", "pad_token_id"),
    *("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "depth_plan", "sharing", "window", "rotary"),
    *("n_layer", "d_model", "n_head", "d_head", "d_inner", "n_token", "untie_r", "ff_activation", "step_signal"),
    *("path", "type", "sentence_transformers.models.Transformer", "prompts", "default_prompt_name", "max_seq_length"),
)
_SETTINGS = (
    *(CreateSettings, PretrainingSettings, FinetuningSettings, EvaluationSettings, ExportSettings, ScoreSettings),
)
SETTING_WORDS = tuple(sorted({flag_name(field) for one in _SETTINGS for field in settings_of(one)}))


def _write_folder(folder: Path, data: bytes, names: tuple[str, ...]) -> bool:
    """Writes the files of a folder from a JSON object of contents by name; texts are written as they are."""
    try:
        contents = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(contents, dict):
        return False
    for path in folder.iterdir():
        path.unlink()
    for name in contents.keys() & set(names):
        content = contents[name]
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
    return True


def _use(tokenizer) -> None:
    for text in _TEXTS:
        ids = tokenizer.encode(text)
        assert all(0 <= number < tokenizer.vocab_size for number in ids), "an id outside of the vocabulary"
        tokenizer.decode(ids)


def tokenizers(folder: Path):
    """A folder's JSON files of a tokenizer."""

    def check(data: bytes) -> None:
        if _write_folder(folder, data, _TOKENIZER_FILES):
            _use(load_tokenizer(folder))

    return check


def vocabularies(folder: Path):
    """The first byte says what the others are: WordPiece's lines, a SentencePiece model, or a BPE's two files."""

    def check(data: bytes) -> None:
        if not data:
            return
        kind, content = data[0] % 3, data[1:]
        if kind == 2:
            first, _, second = content.partition(b"\0")
            (folder / "vocab.json").write_bytes(first)
            (folder / "merges.txt").write_bytes(second)
            _use(load_tokenizer(folder / "vocab.json"))
        else:
            path = folder / ("vocab.txt", "spiece.model")[kind]
            path.write_bytes(content)
            _use(load_tokenizer(path))

    return check


def safetensors(folder: Path):
    """The first byte: the file as it is, a header whose length is made right, or the index of shards."""

    def check(data: bytes) -> None:
        kind, content = data[:1], data[1:]
        path = folder / "model.safetensors"
        if kind == b"i":
            path = folder / "model.safetensors.index.json"
        elif kind == b"h":
            header, _, values = content.partition(b"\n")
            content = struct.pack("<Q", len(header)) + header + values
        path.write_bytes(content)
        read_tensors(path)

    return check


def records(folder: Path):
    """The first byte: the file as it is, or the tf.train.Examples of frames that are made right."""
    path = folder / "train.tfrecord"

    def check(data: bytes) -> None:
        if data[:1] == b"f":
            with tf.io.TFRecordWriter(str(path)) as writer:
                for part in data[1:].split(b"\xff\xff"):
                    writer.write(part)
        else:
            path.write_bytes(data[1:])
        listed = {"name": path.name, "examples": 1, "bytes": path.stat().st_size}
        splits = {split: {"documents": 1, "examples": 1, "files": [listed]} for split in SPLITS}
        known = {"format_version": FORMAT_VERSION, "masking": "static", "pad_id": 0, "splits": splits}
        files.write_json(folder / MANIFEST, known | {"max_seq_length": 4, "max_predictions_per_seq": 1})
        try:
            for _ in read_examples(str(path), batch_size=2, training=False):
                pass
        except (tf.errors.OpError, UnicodeDecodeError):
            # TensorFlow says where a record is damaged; its message may quote bytes that are not UTF-8.
            pass

    return check


def configurations(folder: Path):
    """Configurations of Hugging Face, google-research and sentence-transformers; what is read can be written."""

    def check(data: bytes) -> None:
        if not _write_folder(folder, data, _CONFIGURATION_FILES):
            return
        for name in _CONFIGURATION_FILES[:4]:
            if (folder / name).is_file():
                try:
                    config = AlbertConfig.from_json(folder / name)
                except UserError:
                    continue
                again = AlbertConfig.from_dict(json.loads(config.to_json()))
                assert not config.differing(again), "a configuration that changes when it is written and read"
        read_modules(folder)
        read_settings(folder, folder)

    return check


def settings(folder: Path):
    """The first byte chooses the command whose settings file the others are."""
    path = folder / "settings.json"

    def check(data: bytes) -> None:
        if not data:
            return
        path.write_bytes(data[1:])
        kind = _SETTINGS[data[0] % len(_SETTINGS)]
        values = read_settings_file(str(path), kind)
        names = {flag_name(field): field.name for field in settings_of(kind)}
        # What has no default is given as a flag.
        needed = {field.name: "x" for field in settings_of(kind) if field.default is dataclasses.MISSING}
        given = {names[key]: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        kind(**needed | given)

    return check
