"""Prints the modules of extensions that an export of a plain model imports, in a process of its own."""

import sys

from albert_tf import AlbertConfig, AlbertEncoder
from serving.inference import make_encoder

config = AlbertConfig(
    vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
)
make_encoder(AlbertEncoder(config))
print([name for name in sys.modules if name.startswith(("albert_tf.extensions", "serving.inference.ext"))])
