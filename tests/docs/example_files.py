"""Small models and texts under the names that the guides use."""

import json
import string
from pathlib import Path

ROOT = Path(__file__).parents[2]

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [f"{mark}{one}" for mark in ("", "##") for one in string.ascii_lowercase + string.digits] + list(".,?!'-%")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def write_models(place: Path) -> None:
    """Writes an untrained BERT of six narrow layers as the sentence encoder that most guides name."""
    from albert_tf import AlbertConfig, AlbertEncoder
    from albert_tf.checkpoints import save_huggingface

    config = AlbertConfig.named("bert_base_uncased").replace(
        vocab_size=len(PIECES), embedding_size=16, hidden_size=16, num_hidden_layers=6, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    encoder = AlbertEncoder(config)
    for folder in (place / MINILM, place / "minilm"):
        save_huggingface(encoder, folder)
        (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
        (folder / "modules.json").write_text(json.dumps(modules))


def write_texts(place: Path) -> None:
    """Writes the texts, tables and questions that the guides name."""
    paragraphs = (ROOT / "tests" / "stored" / "corpus.txt").read_text("utf-8")
    for folder, name in (("corpus", "a.txt"), ("german", "a.txt"), ("notes", "a.txt")):
        (place / folder).mkdir()
        (place / folder / name).write_text(paragraphs, "utf-8")
    (place / "texts.txt").write_text("Where is my parcel?\nThe invoice is wrong.\n")
    (place / "passages.txt").write_text("The river ends in the sea.\nThe road ends here.\n")
    (place / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (place / "rows").mkdir()
    (place / "rows" / "a.jsonl").write_text('{"text": "Where is my parcel?"}\n')
    for folder in ("reviews", "reports"):
        (place / folder).mkdir()
        for split in ("train", "dev"):
            rows = [f"{word} film,{label}\n" for word, label in (("good", "yes"), ("bad", "no")) for _ in range(8)]
            (place / folder / f"{split}.csv").write_text("text,label\n" + "".join(rows))
    (place / "glue" / "SST-2").mkdir(parents=True)
    (place / "glue" / "STS-B").mkdir()
    for split in ("train", "dev"):
        rows = [f"{word} film\t{label}\n" for word, label in (("good", 1), ("bad", 0)) for _ in range(8)]
        (place / "glue" / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        names = ["index", "genre", "filename", "year", "id", "source1", "source2", "sentence1", "sentence2", "score"]
        pairs = [[str(n), *["x"] * 6, "a film", f"{'the' * (n % 2)} film", f"{n % 6}.0"] for n in range(16)]
        (place / "glue" / "STS-B" / f"{split}.tsv").write_text(
            "\n".join("\t".join(row) for row in [names, *pairs]) + "\n"
        )
    question = {"id": "1", "question": "Who wrote it?", "answers": [{"text": "Ann", "answer_start": 0}]}
    question |= {"is_impossible": False}
    squad = {
        "version": "v2.0",
        "data": [{"title": "t", "paragraphs": [{"context": "Ann wrote it in May.", "qas": [question]}]}],
    }
    (place / "squad").mkdir()
    for name in ("squad/train-v2.0.json", "squad/dev-v2.0.json", "dev-v2.0.json"):
        (place / name).write_text(json.dumps(squad))
    (place / "predictions.json").write_text('{"1": "Ann"}')
    (place / "null_odds.json").write_text('{"1": 0.0}')
    for name in ("examples", "serving", "recipes", "scripts"):
        (place / name).symlink_to(ROOT / name)


def write_place(place: Path) -> None:
    """Writes models and texts, all that a guide may name."""
    write_models(place)
    write_texts(place)
