"""One shard: rows of numbers under their keys, as the bytes of a Parquet file.

Columns: `key`, and for each field a list of float32. All lists of a row are equally long.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Shard", "decode", "decode_keys", "encode"]


class Shard(NamedTuple):
    """The numbers of a shard.

    Attributes:
      offsets: [rows + 1], where the columns of each row begin.
      values: field -> [columns of all rows] float32.
    """

    offsets: np.ndarray
    values: dict[str, np.ndarray]

    def row(self, row: int, fields: Sequence[str]) -> np.ndarray:
        """[fields, columns] of one row."""
        cut = slice(self.offsets[row], self.offsets[row + 1])
        return np.stack([self.values[field][cut] for field in fields])


def encode(keys: Sequence[bytes], rows: Sequence[np.ndarray], fields: Sequence[str]) -> bytes:
    """A Parquet file of rows [fields, columns]; the same rows give the same bytes.

    >>> data = encode([b"a", b"b"], [np.ones((1, 2), np.float32), np.zeros((1, 0), np.float32)], ["loss"])
    >>> decode_keys(data), decode(data).row(0, ["loss"]).tolist()
    (([b'a', b'b'], ('loss',)), [[1.0, 1.0]])
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    offsets = np.concatenate([[0], np.cumsum([row.shape[1] for row in rows])]).astype(np.int32)
    values = np.concatenate([np.zeros((len(fields), 0), np.float32), *rows], axis=1)
    columns: dict[str, Any] = {"key": pa.array(keys, pa.binary())}
    for field, numbers in zip(fields, values, strict=True):
        columns[field] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(numbers)))
    table = pa.table(columns)
    out = io.BytesIO()
    pq.write_table(
        table, out, row_group_size=max(1, len(keys)), use_dictionary=False, write_statistics=False, compression="none"
    )
    return out.getvalue()


def decode_keys(data: bytes) -> tuple[list[bytes], tuple[str, ...]]:
    """The keys, and the names of the fields."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    return file.read(columns=["key"])["key"].to_pylist(), tuple(file.schema_arrow.names[1:])


def decode(data: bytes) -> Shard:
    """The numbers alone."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))  # pq.read_table would import pandas
    table = file.read(columns=file.schema_arrow.names[1:]).combine_chunks()
    offsets, values = np.zeros(1, np.int64), {}
    for field in table.column_names:
        lists = table[field].chunk(0)
        offsets = lists.offsets.to_numpy()
        values[field] = lists.values.to_numpy()
    return Shard(offsets, values)
