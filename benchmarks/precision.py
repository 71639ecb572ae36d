"""What narrower products do to each score: the precisions of accelerators, emulated on a CPU.

A GPU multiplies float32 as TF32 (10 bits of fraction) unless it is told otherwise, a TPU as bfloat16; a model stored in
bfloat16 has 16-bit factors everywhere, in attention too. Sums are float32 in all of them. The head's product of a
float32 model is accurate to float32 on every platform and is left as it is.

    python -m benchmarks.precision
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.models import attention

SCORES = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi", "grad_norm")
MODES = {
    "float32 weights, TF32 products (GPU)": ("float32", "tf32"),
    "float32 weights, bfloat16 products (TPU)": ("float32", "bfloat16"),
    "bfloat16 weights (CPU: attention in float32)": ("bfloat16", None),
    "bfloat16 weights (GPU, TPU)": ("bfloat16", "attention"),
}
"""Type of the weights, and what is emulated; each is compared with float32 arithmetic on the same weights."""


def to_tf32(x: jax.Array) -> jax.Array:
    """float32 rounded to 10 bits of fraction, to nearest, ties to even."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    bits = bits + 0xFFF + ((bits >> 13) & 1)
    return jax.lax.bitcast_convert_type(bits & jnp.uint32(0xFFFFE000), jnp.float32)


def to_bfloat16(x: jax.Array) -> jax.Array:
    """float32 rounded to bfloat16."""
    return x.astype(jnp.bfloat16).astype(jnp.float32)


@contextlib.contextmanager
def emulated(rounding: Callable[[jax.Array], jax.Array] | None) -> Iterator[None]:
    """The programs of accelerators on a CPU, whose default products round their float32 factors."""
    einsum, choose = jnp.einsum, jax.lax.platform_dependent

    def rounded(subscripts: str, *factors: Any, precision: Any = None, **options: Any) -> jax.Array:
        if rounding is not None and precision is None and all(x.dtype == jnp.float32 for x in factors):
            factors = tuple(x + jax.lax.stop_gradient(rounding(x) - x) for x in factors)  # bits have no gradient
        return einsum(subscripts, *factors, precision=precision, **options)

    def elsewhere(*operands: Any, **forms: Any) -> Any:
        is_attention = getattr(forms.get("default"), "func", None) is attention._in_blocks
        return forms["default"](*operands) if is_attention else choose(*operands, **forms)

    jax.clear_caches()
    with mock.patch.object(jnp, "einsum", rounded), mock.patch.object(jax.lax, "platform_dependent", elsewhere):
        yield
    jax.clear_caches()


def scores_under(model: Any, texts: list[str], emulation: str | None = None) -> dict[str, np.ndarray]:
    """Every score of every text."""
    roundings = {"tf32": to_tf32, "bfloat16": to_bfloat16, "attention": None}
    with contextlib.nullcontext() if emulation is None else emulated(roundings[emulation]):
        found = tdd.score(model, texts, SCORES)
    return {name: np.asarray(found[name]) for name in SCORES}


def main() -> None:
    jax.config.update("jax_enable_compilation_cache", False)  # what is patched does not change a program's key
    texts = [*load_calibration().texts, *load_candidates().texts][::8]
    rows = []
    for mode, (dtype, emulation) in MODES.items():
        lm, params, tokenizer = tdd.load(demo_files().checkpoint, dtype=dtype)
        widened = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
        exact = scores_under((lm, widened, tokenizer), texts)
        found = scores_under((lm, params, tokenizer), texts, emulation)
        for name in SCORES:
            error = np.abs(found[name] - exact[name])
            rows.append(
                {
                    "precision": mode,
                    "score": name,
                    "median error": float(np.median(error)),
                    "largest error": float(error.max()),
                    "largest error / s.d. over texts": float(error.max() / exact[name].std()),
                }
            )
    print(harness.table(rows))
    harness.write("precision", {"command": "python -m benchmarks.precision", "texts": len(texts), "rows": rows})


if __name__ == "__main__":
    main()
