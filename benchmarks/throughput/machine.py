"""What the benchmarks run on: the device, its versions, and the rates that a share is a share of."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.cores import available_cores

__all__ = ["copy_bandwidth", "machine", "matmul_flops", "product_rate"]

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "statsmodels", "knockpy", "torch", "transformers")
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
_COPY_BYTES = {"cpu": 2**28, "gpu": 2**31, "tpu": 2**30}


def machine() -> dict[str, Any]:
    """Device, cores, load and versions; what is not installed is left out."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = jax.local_devices()[0]
    return {
        "device": str(device),
        "device_kind": device.device_kind,
        "num_devices": jax.local_device_count(),
        "processor": _cpuinfo("model name") or platform.processor(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in _cpuinfo("flags").split()],
        "cores": available_cores(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "versions": versions,
    }


def copy_bandwidth(num_bytes: int | None = None, rounds: int = 7) -> float:
    """Bytes read and written a second by x -> -x on a large array: the best of a few rounds.

    Args:
      num_bytes: size of the array; by default far beyond the caches of the default device.
      rounds: how often.
    """
    size = (num_bytes or _COPY_BYTES.get(jax.default_backend(), 2**28)) // 4
    values = jnp.zeros(size, jnp.float32)
    copy = jax.jit(jnp.negative)
    jax.block_until_ready(copy(values))
    return 2 * 4 * size / min(_seconds(copy, values) for _ in range(rounds))


def matmul_flops(size: int = 2048, rounds: int = 7) -> float:
    """The machine's own float32 matrix-product rate through XLA, flop/s: the best of a few products."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.float32)
    product = jax.jit(lambda x: jnp.matmul(x, x, precision="highest"))
    jax.block_until_ready(product(a))
    return 2 * size**3 / min(_seconds(product, a) for _ in range(rounds))


def product_rate(shapes: Sequence[tuple[int, int, int]], rows: int, dtype: str, library: str) -> float:
    """Flop/s of a library's products of `rows` tokens with a model's weights: each shape once, weighted by its number.

    Args:
      shapes: (rows, columns, number) of the weights.
      rows: tokens.
      dtype: "float32" or "bfloat16".
      library: "jax", whose products of bfloat16 are float32, or "torch", whose products have the type of their factors.
    """
    rng, seconds, flops = np.random.default_rng(0), 0.0, 0.0
    for inner, columns, number in shapes:
        factors = [rng.standard_normal(size, np.float32) for size in ((rows, inner), (inner, columns))]
        if library == "jax":
            call = functools.partial(_product, *(jnp.asarray(factor, dtype) for factor in factors))
        else:
            import torch

            call = functools.partial(
                torch.matmul, *(torch.from_numpy(factor).to(getattr(torch, dtype)) for factor in factors)
            )
        call()  # programs and threads are there before the clock starts
        seconds += number * min(_seconds(call) for _ in range(2))
        flops += number * 2.0 * rows * inner * columns
    return flops / seconds


@jax.jit
def _product(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.matmul(x, weights, preferred_element_type=jnp.float32)


def _seconds(call: Any, *arguments: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start


def _cpuinfo(key: str) -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith(key))
    except (OSError, StopIteration):
        return ""
