"""Reads text files as documents."""

from tfrecords.corpus.documents import find_files, read_documents

__all__ = ["find_files", "read_documents"]
