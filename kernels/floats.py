"""The types that kernels compute in, whatever `jax_numpy_dtype_promotion` says: kernels cast explicitly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["at_least_single", "common", "comparable"]


def common(*values: Any) -> Any:
    """The type that JAX's standard rules promote these arrays, scalars and types to; strict promotion refuses most."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*values)


def at_least_single(values: jax.Array) -> jax.Array:
    """The values, half precision and integers as float32, and double precision as it is."""
    return values.astype(common(values.dtype, jnp.float32))


def comparable(*samples: jax.Array) -> tuple[jax.Array, ...]:
    """The samples in one type: neither the keys of different types (`ranks.order_keys`) nor their ~x are comparable."""
    arrays = [jnp.asarray(sample) for sample in samples]
    return tuple(array.astype(common(*arrays)) for array in arrays)
