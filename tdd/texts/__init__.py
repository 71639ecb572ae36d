"""Input texts: files, folders and Python objects → `tdd.records.Texts`."""

from tdd.texts.load import TextColumns, hash_texts, load_text_columns, load_texts
from tdd.texts.read import read_rows
from tdd.texts.rows import Rows

__all__ = ["Rows", "TextColumns", "hash_texts", "load_text_columns", "load_texts", "read_rows"]
