"""Settings of JAX by which a training finds its own errors."""

import contextlib

import jax

STRICT = {
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_transfer_guard": "disallow",
}


@contextlib.contextmanager
def strict():
    """Run under all of them; whoever runs leaves them as they are."""
    before = {name: getattr(jax.config, name) for name in STRICT}
    jax.clear_caches()  # a program that was compiled under other settings is not looked into
    try:
        for name, value in STRICT.items():
            jax.config.update(name, value)
        yield
        assert {name: getattr(jax.config, name) for name in STRICT} == STRICT
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
