"""Compression of an encoder: factorise, share, prune, distil, and report the losses."""
