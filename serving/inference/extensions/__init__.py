"""Exports' own code of some extensions, in modules of their names."""
