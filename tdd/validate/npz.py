"""NumPy's .npz files, whole or refused."""

from __future__ import annotations

import os

import numpy as np

__all__ = ["read_npz"]


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file, by name.

    Raises:
      ValueError: whatever NumPy, zipfile and zlib have to say of a damaged, cut or empty file.
      OSError: it cannot be opened.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except OSError:
        raise
    except Exception as error:  # a dozen types, of which not all are listed anywhere
        raise ValueError(str(error) or type(error).__name__) from error
