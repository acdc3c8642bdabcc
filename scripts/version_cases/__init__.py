"""The cases that `scripts.compare_versions` runs in two versions of this library.

The same files run in both: they are copied from the newer tree and import each other relatively. Of the library they
use what `places` lists and nothing else.
"""
