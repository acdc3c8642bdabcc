"""Byte-level BPE."""
