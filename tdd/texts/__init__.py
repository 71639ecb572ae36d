"""Input texts: files, folders and Python objects → `tdd.records.Texts`."""

from tdd.texts.load import hash_texts, load_texts
from tdd.texts.rows import Rows, read_rows

__all__ = ["Rows", "hash_texts", "load_texts", "read_rows"]
