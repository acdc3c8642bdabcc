"""The encoder. Read its files in this order: block, depth, weights, padded, encoder."""
