"""Text to token ids and back, in Python and in the graph, with equal ids."""
