"""The version of the library and its client."""

VERSION = "0.2.0"
