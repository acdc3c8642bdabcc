"""A table of two rows at a size that takes seconds, of settings files as experiments/ has them."""

import json

import pytest

ONE_ROW = {"setup": "What is plain worth?", "rows": ["plain"], "comparisons": []}


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="session")
def settings_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiments")
    write(
        folder / "scales" / "tiny.json",
        {
            "description": "For tests.",
            "vocabulary": {"vocab_size": 300, "max_lines": 300},
            "data": {"max_seq_length": 16, "masking": "dynamic", "split_sentences": True, "seed": 1},
            "config": {"embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
            | {"intermediate_size": 16, "max_position_embeddings": 16},
            "training": {"optimizer": "adamw", "learning_rate": 0.01, "train_batch_size": 4, "num_train_steps": 2}
            | {"num_warmup_steps": 1, "save_checkpoints_steps": 1, "log_steps": 1, "max_eval_steps": 2}
            | {"gradient_accumulation_steps": 1},
            "finetuning": {"num_train_steps": 2, "num_warmup_steps": 1, "train_batch_size": 4, "max_seq_length": 16},
            "seeds": 2,
            "inference_length": 16,
        },
    )
    table = folder / "tables" / "pair"
    write(table / "plain.json", {"title": "plain", "published": "80.1"})
    write(
        table / "wide.json",
        {"title": "wide", "config": {"intermediate_size": 24}, "at": {"tiny": {"training": {"learning_rate": 0.02}}}},
    )
    write(
        table / "table.json",
        {
            "title": "A pair",
            "setup": "Is wide better?",
            "rows": ["plain", "wide"],
            "comparisons": [{"row": "wide", "against": "plain", "published": "better", "source": "Nobody, 2020"}],
            "columns": ["parameters", "loss", "accuracy", "pair_accuracy", "nsp_accuracy", "sop_accuracy", "minutes"],
            "published_column": "published",
            "remarks": {"tiny": ["It is tiny."], "small": ["It is small."]},
        },
    )
    # One of the same runs, asked something else.
    asked = folder / "tables" / "asked"
    write(asked / "plain.json", {"title": "plain"})
    columns = ["loss", "common_loss", "common_accuracy", "l2_last", "degrees_mean", "sst2"]
    write(asked / "table.json", ONE_ROW | {"title": "Asked", "columns": columns})
    exits = folder / "tables" / "exits"
    write(exits / "plain.json", {"title": "plain"})
    write(
        exits / "table.json",
        ONE_ROW | {"title": "Exits", "columns": ["exit_score_all", "exit_score_1", "exit_steps_1"]},
    )
    return folder
