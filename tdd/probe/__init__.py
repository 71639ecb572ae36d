"""The same statistics inside somebody else's training loop.

    probe = tdd.Probe(lm, suspect=benchmark, reference=fresh, tokenizer=tokenizer, every=500, num_steps=10_000)
    for step in range(10_000):
        params, ... = train_step(params, ...)
        record = probe(step, params)

The names below are loaded on first use: importing this package imports no JAX.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
