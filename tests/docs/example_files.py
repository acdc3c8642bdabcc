"""Small models and texts under the names that the guides use."""

import json
import string
from pathlib import Path

from tests.docs.pages import ROOT

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [f"{mark}{one}" for mark in ("", "##") for one in string.ascii_lowercase + string.digits] + list(".,?!'-%")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L6-v2"


CORPUS = ROOT / "tests" / "stored" / "corpus.txt"
NARROW = {"embedding_size": 16, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
NARROW |= {"max_position_embeddings": 256}


def write_models(place):
    """Writes an untrained BERT of six narrow layers as the sentence encoder that most guides name."""
    from albert_tf import AlbertConfig, AlbertEncoder
    from albert_tf.checkpoints import save_huggingface

    config = AlbertConfig.named("bert_base_uncased").replace(vocab_size=len(PIECES), num_hidden_layers=6, **NARROW)
    encoder = AlbertEncoder(config)
    for folder in (place / MINILM, place / "minilm"):
        save_huggingface(encoder, folder)
        (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
        (folder / "modules.json").write_text(json.dumps(modules))


def write_other_models(place):
    """Writes the other models that guides name, untrained and narrow, and narrow configurations as small/NAME.json."""
    from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
    from albert_tf.checkpoints import save_huggingface
    from albert_tf.models.classifiers import AlbertRegressor
    from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer

    lines = CORPUS.read_text("utf-8").splitlines()
    pieces = train_tokenizer(lines, 150, hard_vocab_limit=False)
    for folder, name, head, file, vocabulary, size, layers in (
        ("albert/albert-base-v2", "albert_base_v2", AlbertPretrainer, "spiece.model", pieces, 150, 7),
        ("xlnet/xlnet-base-cased", "xlnet_base", None, "spiece.model", pieces, 150, 2),
        ("FacebookAI/roberta-base", "roberta_base", None, "tokenizer.json", train_bpe(lines, 300), 300, 2),
        (RERANKER, "bert_base_uncased", AlbertRegressor, "vocab.txt", "\n".join(PIECES).encode(), len(PIECES), 2),
    ):
        encoder = AlbertEncoder(AlbertConfig.named(name).replace(vocab_size=size, num_hidden_layers=layers, **NARROW))
        save_huggingface(head(encoder) if head else encoder, place / folder)
        (place / folder / file).write_bytes(vocabulary)
    for folder, name in (("dbmdz", "bert-base-german-uncased"), ("intfloat", "multilingual-e5-small")):
        (place / folder).mkdir()
        (place / folder / name).symlink_to(Path("..") / MINILM)
    (place / "small").mkdir()
    for name in ("albert_base_v2", "albert_tiny_zh", "albert_xlnet_base", "roberta_base"):
        config = AlbertConfig.named(name).replace(vocab_size=300, num_hidden_layers=3, **NARROW)
        config.to_json(place / "small" / f"{name}.json")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def write_texts(place):
    """Writes the texts, tables and questions that the guides name."""
    for folder in ("corpus", "german", "notes"):
        write(place / folder / "a.txt", CORPUS.read_text("utf-8"))
    sentences = ["".join(chr(0x4E00 + (7 * n + k) % 80) for k in range(12)) + "\u3002" for n in range(69)]
    rows = [json.dumps({"text": "\n".join(sentences[n : n + 9])}) for n in range(60)]
    write(place / "chinese" / "a.jsonl", "\n".join(rows))
    write(place / "texts.txt", "Where is my parcel?\nThe invoice is wrong.\n")
    write(place / "vocab.txt", "\n".join(PIECES) + "\n")
    write(place / "passages.txt", "The river ends in the sea.\nThe road ends here.\n")
    # Texts so short and unlike that an untrained model tells them apart.
    rows = [f"{letter * 3} {letter},{letter * 5} {letter}\n" for letter in string.ascii_lowercase]
    write(place / "pairs.csv", "question,answer\n" + "".join(rows))
    pairs = [f"a film,{'the' * (n % 2)} film,{n % 6}\n" for n in range(16)]
    write(place / "sets" / "sts" / "test.csv", "sentence1,sentence2,score\n" + "".join(pairs))
    write(place / "rows" / "a.jsonl", '{"text": "Where is my parcel?"}\n')
    names = ["index", "genre", "filename", "year", "id", "source1", "source2", "sentence1", "sentence2", "score"]
    pairs = [[str(n), *["x"] * 6, "a film", f"{'the' * (n % 2)} film", f"{n % 6}.0"] for n in range(16)]
    for split in ("train", "dev"):
        rows = [f"{word} film,{label}\n" for word, label in (("good", "yes"), ("bad", "no")) for _ in range(8)]
        for folder in ("reviews", "reports"):
            write(place / folder / f"{split}.csv", "text,label\n" + "".join(rows))
        rows = [f"{word} film {n}\t{label}\n" for word, label in (("good", 1), ("bad", 0)) for n in range(16)]
        write(place / "glue" / "SST-2" / f"{split}.tsv", "sentence\tlabel\n" + "".join(rows))
        write(place / "glue" / "STS-B" / f"{split}.tsv", "\n".join("\t".join(row) for row in [names, *pairs]) + "\n")
    question = {"id": "1", "question": "Who wrote it?", "answers": [{"text": "Ann", "answer_start": 0}]}
    question |= {"is_impossible": False}
    without = {"id": "2", "question": "Who read it?", "answers": [], "is_impossible": True}
    squad = {
        "version": "v2.0",
        "data": [{"title": "t", "paragraphs": [{"context": "Ann wrote it in May.", "qas": [question, without]}]}],
    }
    for name in ("squad/train-v2.0.json", "squad/dev-v2.0.json", "dev-v2.0.json"):
        write(place / name, json.dumps(squad))
    write(place / "predictions.json", '{"1": "Ann", "2": ""}')
    write(place / "null_odds.json", '{"1": 0.0, "2": 1.0}')
    for name in ("examples", "serving", "recipes", "scripts"):
        (place / name).symlink_to(ROOT / name)


def write_place(place):
    """Writes models and texts, all that a guide may name."""
    write_models(place)
    write_other_models(place)
    write_texts(place)
