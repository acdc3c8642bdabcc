"""The process and its machine: cores, symbols, start."""
