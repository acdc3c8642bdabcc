"""What models in memory and LiteRT versions share: what callers send, and how a model's numbers become answers."""
