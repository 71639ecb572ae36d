"""Addresses: what numbers depend on beside the row itself, the model to the bit, the versions, the kind of machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from tdd.placement import everywhere
from tdd.scoring.devices import Devices

_CODE = 1
"""Raise this when the code computes other numbers under the same version of the package."""

_PIECE = 2**26


def address(kind: str, model: str, devices: Devices, **more: Any) -> dict[str, Any]:
    """The address of a kind of numbers of the model with that fingerprint; `more` is what else they depend on."""
    config: Any = jax.config
    return {
        "kind": kind,
        "model": model,
        "tdd": tdd.__version__,
        "code": _CODE,
        "jax": jax.__version__,
        "platform": devices.platform,
        "device": devices.devices[0].device_kind,
        "matmul_precision": str(config.jax_default_matmul_precision),
        "x64": bool(config.jax_enable_x64),
        **more,
    }


def row_key(tokens: np.ndarray, first_target: int) -> bytes:
    """16 bytes that tell a row from any other: a digest of its tokens and of its first scored one."""
    digest = hashlib.blake2b(np.ascontiguousarray(tokens, "<i4").data, digest_size=16)
    digest.update(first_target.to_bytes(8, "little"))
    return digest.digest()


def fingerprint(spec: Any, params: Any) -> str:
    """SHA-256 of a model: its spec, and name, type, shape and bytes of every parameter.

    Reads all of them once, in pieces: a model that is sharded over devices need not fit into host memory.
    """
    digest = hashlib.sha256(repr(spec).encode())
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        leaf = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        for piece in _pieces(leaf):
            digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(leaf: Any) -> Iterator[Any]:
    """Runs of rows of an array, of about 64 MiB or a single row. An array over the devices of several processes is put
    together in each of them."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        yield from (everywhere(piece).addressable_data(0) for piece in _runs(leaf))
    else:
        yield from _runs(leaf)


def _runs(leaf: Any) -> Iterator[Any]:
    rows = leaf.shape[0] if leaf.ndim else 1
    step = max(1, rows * _PIECE // max(1, leaf.nbytes))
    if step >= rows:
        yield leaf
        return
    for first in range(0, rows, step):
        size = min(step, rows - first)
        on_device = isinstance(leaf, jax.Array)
        yield jax.lax.dynamic_slice_in_dim(leaf, first, size) if on_device else leaf[first : first + size]
