"""Monte Carlo studies of what the procedures promise.

    import tdd
    result = tdd.study.run(tdd.study.NormalShift(signal=2.0), ["ptdi/storey"], alphas=[0.1], repetitions=10_000)

`run` takes any design and any method; `resample` is the engine for one labelled pool, O(N) a repetition,
`resample_joint` and `simulate_joint` are those for joint selections; `expected_power` and `expected_exchange_power` say
what an audit or a test of order may expect to find. With a folder and `shard=(i, n)`
each runs a part of the repetitions; without `shard` it joins the parts. The names below are loaded
on first use: importing this package imports no JAX.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
