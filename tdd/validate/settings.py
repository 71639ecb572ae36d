"""The settings of JAX that this package computes in, whatever its caller has set for a training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from tdd.validate.arrays import check_process


@contextlib.contextmanager
def in_own_settings() -> Iterator[None]:
    """Compute in JAX's default settings, whatever a training loop has set to find its own errors; also a decorator.

    Results hold NaN for what is missing, types and ranks are promoted, and small arrays come from the host.

    Raises:
      InputError: a process that was forked from one that computed.
    """
    check_process()
    if _are_own():  # entering a context costs more than a small decision
        yield
        return
    with (
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.transfer_guard("allow"),
    ):
        yield


_GUARDS = [f"jax_transfer_guard_{way}" for way in ("host_to_device", "device_to_device", "device_to_host")]


def _are_own() -> bool:
    """Whether the caller has left the settings as JAX has them."""
    config: Any = jax.config
    promotion = config.jax_numpy_dtype_promotion  # a word, or in newer JAX an enumeration
    return (
        not (config.jax_debug_nans or config.jax_debug_infs)
        and getattr(promotion, "value", promotion) == "standard"
        and config.jax_numpy_rank_promotion == "allow"
        and all(getattr(config, guard) in (None, "allow") for guard in _GUARDS)
    )


@contextlib.contextmanager
def on_own_devices() -> Iterator[None]:
    """`in_own_settings`, and outside a mesh of `jax.set_mesh`; also a decorator, of what chooses its own devices."""
    none: Any = None
    with in_own_settings(), contextlib.ExitStack() as stack:
        if not jax.sharding.get_abstract_mesh().empty:
            stack.enter_context(jax.set_mesh(none))
        yield
