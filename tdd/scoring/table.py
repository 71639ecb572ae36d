"""`Scores` as a file: CSV, Parquet or JSON lines, with the provenance beside it."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import pathlib
import shutil

import numpy as np

from tdd.records import Scores
from tdd.runs.atomic import atomic_path, check_output_file, write_atomically
from tdd.runs.folder import to_json, versions

ENDINGS = (".csv", ".parquet", ".jsonl")


def store_beside(path: pathlib.Path) -> pathlib.Path:
    """The score store that a run keeps beside its table until that is written."""
    return path.with_name(f".{path.name}.scoring")


def write_scores(table: Scores, path: pathlib.Path, *, keep_store: bool = True) -> None:
    """Write ids, token counts and scores; `<name>.provenance.json` beside them records how they were computed.

    The store beside `path` is removed unless `keep_store`.

    Raises:
      InputError: another ending, or a folder that cannot be written.
    """
    check_output_file(path, ENDINGS)
    columns = {"id": list(table.ids), "num_tokens": np.asarray(table.num_tokens).tolist()}
    columns |= {name: np.asarray(column, np.float64).tolist() for name, column in table.values.items()}
    with atomic_path(path) as temporary:
        _write(columns, path.suffix, temporary)
    provenance = {"versions": versions(), **table.provenance}
    write_atomically(path.with_name(f"{path.name}.provenance.json"), to_json(provenance).encode())
    if not keep_store:
        _remove(store_beside(path))


def _remove(store: pathlib.Path) -> None:
    """Remove a store at once: what a kill leaves of it has another name, and is removed the next time."""
    gone = store.with_name(f"{store.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):
        store.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _write(columns: dict[str, list], ending: str, path: pathlib.Path) -> None:
    if ending == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        with open(path, "wb") as file:  # of a name with a colon Arrow would take a part for a kind of file system
            pq.write_table(pa.table(columns), file)
        return
    missing = "" if ending == ".csv" else None
    rows = (
        [missing if isinstance(x, float) and math.isnan(x) else x for x in row]
        for row in zip(*columns.values(), strict=True)
    )
    with open(path, "w", encoding="utf-8", newline="" if ending == ".csv" else None) as file:
        if ending == ".csv":
            csv.writer(file).writerows(itertools.chain([columns], rows))
        else:
            file.writelines(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
