"""FLOPs by hand, distances of known vectors, and the commands."""

import csv

import numpy as np
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder
from albert_tf.analysis.__main__ import CostSettings
from albert_tf.analysis.__main__ import main as print_costs
from albert_tf.analysis.cost import PAPER, flops
from albert_tf.analysis.layer_distances import LayerDistancesSettings, layer_distances
from albert_tf.analysis.layer_distances import main as measure
from tests.albert_tf.tiny import batch, small
from tests.refusals import refused


def test_flops_of_a_config_small_enough_to_count_by_hand():
    config = small(embedding_size=2, hidden_size=4, num_hidden_layers=3, intermediate_size=8)
    counted = flops(config, length=5)
    # Projection 2 * 5 * 2 * 4; of each layer 4 * 2 * 5 * 4 * 4, 2 * 2 * 2 * 5 * 5 * 2 and 2 * 2 * 5 * 4 * 8; pooler.
    assert counted == 80 + 1920 + 1200 + 1920 + 2 * 4 * 4
    assert counted == flops(config.replace(sharing="none"), 5), "sharing saves parameters, not work"


def test_the_cost_of_another_depth(capsys):
    print_costs(CostSettings(configs="albert_base_v2", depth=6))
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split()[1] == "6" and f"{PAPER['albert_base_v2']}M" in line
    with refused(r"bert_base_uncased: depth 6 cannot be run.*--configs says which"):
        print_costs(CostSettings(configs="albert_base_v2,bert_base_uncased", depth=6))


def test_distances_of_known_vectors():
    class Fixed:
        def __call__(self, features, output_hidden_states):
            first, turned = np.array([[[3.0, 0], [9, 9]]]), np.array([[[0, 4.0], [1, 1]]])
            return {"hidden_states": [first, turned, 2 * turned]}

    turn, stretch = layer_distances(Fixed(), {"input_mask": np.array([[1, 0]])})
    assert_allclose(turn, (1, 5, 0, 90), atol=1e-9)
    assert_allclose(stretch, (2, 4, 1, 0), atol=1e-6)
    looped = layer_distances(AlbertEncoder(small(), walk="loop"), batch())
    assert [distance.step for distance in looped] == [1, 2]


def test_commands_measure_models_on_texts(tmp_path, capsys):
    text, folder, out = tmp_path / "text.txt", tmp_path / "model", tmp_path / "out"
    vocabulary = tmp_path / "vocab.txt"
    text.write_text("a b a\nb\n\nb a\n")
    folder.mkdir()
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##c\n")
    AlbertEncoder(small(vocab_size=8)).save(folder / "model.keras")
    settings = {"input": str(text), "output_dir": str(out), "tokenizer": str(vocabulary)}
    measure(LayerDistancesSettings(models=str(folder), max_seq_length=16, **settings))
    assert capsys.readouterr().out.splitlines()[-1].startswith("wrote ")
    rows = list(csv.DictReader((out / "distances.csv").open()))
    assert [(row["model"], row["step"]) for row in rows] == [(str(folder), "1"), (str(folder), "2")]
    assert float(rows[0]["degrees"]) > 0 and (out / "distances.png").read_bytes().startswith(b"\x89PNG")
    with refused("600 is more than the model's 32 positions"):
        measure(LayerDistancesSettings(models=str(folder), max_seq_length=600, **settings))
