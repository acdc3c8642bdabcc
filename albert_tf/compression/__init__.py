"""Compression of an encoder: factorise, share, prune, distil, report."""
