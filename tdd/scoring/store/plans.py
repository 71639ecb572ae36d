"""What a run planned to compute, written down once, by whoever comes first."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pathlib
import secrets
import zlib

import numpy as np

from tdd.scoring.store.files import sync_folder, write_durably

__all__ = ["read_plan", "record_plan"]

_logger = logging.getLogger("tdd")


def read_plan(place: pathlib.Path, run: str, num_rows: int) -> np.ndarray | None:
    """[rows] bool of a recorded plan; None where there is none. A damaged one is set aside, and planned anew."""
    try:
        content = json.loads(place.read_bytes())
        bits = np.frombuffer(zlib.decompress(base64.b64decode(content["planned"])), np.uint8)
        if content["run"] == run and content["rows"] == num_rows and content["check"] == zlib.crc32(bits.data):
            return np.unpackbits(bits, count=num_rows).astype(bool)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, zlib.error):
        pass
    _logger.warning("%s is damaged; what is missing of the run is planned anew", place)
    os.replace(place, place.with_name(place.name + ".damaged"))
    return None


def record_plan(place: pathlib.Path, run: str, planned: np.ndarray) -> np.ndarray:
    """Write a plan down; returns it, or that of another process that came first."""
    bits = np.packbits(planned)
    content = {
        "run": run,
        "rows": len(planned),
        "planned": base64.b64encode(zlib.compress(bits.tobytes())).decode(),
        "check": zlib.crc32(bits.data),
    }
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(6)}.part")
    try:
        write_durably(temporary, json.dumps(content).encode())
        try:
            os.link(temporary, place)  # unlike a rename, this fails where somebody came first
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(temporary, place)
        sync_folder(place.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    found = read_plan(place, run, len(planned))
    return planned if found is None else found
