"""The version of the library, and of the client that is built from the same files."""

VERSION = "0.2.0"
