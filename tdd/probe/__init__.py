"""The same statistics inside somebody else's training loop.

    probe = tdd.Probe(lm, suspect=benchmark, reference=fresh, tokenizer=tokenizer, every=500, num_steps=10_000)
    for step in range(10_000):
        params, ... = train_step(params, ...)
        record = probe(step, params)

    inputs                        what enters: checked options; texts as rows of tokens in micro-batches
    program, evidence             parameters → scores → evidence over the looks, the record of a look
    probe, folder                 the driver, and the folder with its outcome in words
    checkpoints                   the driver over saved checkpoints, without a loop
    benchmark, shards             a watched benchmark: when it leaked, and its order as its own reference
    order, stream                 guards on the training stream
    adapters, gradients           other libraries' loops and metric writers; gradient norms of any loss

The names below are loaded on first use: importing this package imports no JAX.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
