"""Simultaneous bounds, Hommel's procedure, local false discovery rates; online procedures depend on the order."""

import contracts_core as core
import jax
import jax.numpy as jnp
import numpy as np
import references_bounds as ref
from contract_entry import Entry

from tdd.kernels import fdp_bounds, hommel, local_fdr

MAX_RANK = 31
COUNTS = np.array([4, 8, 16, 40], np.int32)
RANKS = np.array([1, 2, 3, 5, 8, 13, 21, 30], np.int32)
MEAN = COUNTS[:, None] * RANKS / MAX_RANK
ENVELOPE = np.minimum(np.ceil(MEAN + 1.2 * np.sqrt(MEAN) + 0.6), COUNTS[:, None]).astype(np.int32)
CUTS = np.array([0, 1, 3, 8, 20, 39, 40], np.float32) / np.float32(core.LATTICE)


def template():
    n, delta = jnp.int32(MAX_RANK - 1), jnp.float32(0.1)
    return fdp_bounds.Template(jnp.asarray(COUNTS), jnp.asarray(RANKS), jnp.asarray(ENVELOPE), n, delta)


def ranks(rng, n, m):
    rank = np.where(rng.random(m) < 0.6, rng.integers(1, 4, m), rng.integers(1, MAX_RANK + 2, m)).astype(np.int32)
    return {"rank": rank, "mask": rng.random(m) < 0.85 if m > 1 else np.ones(m, bool)}


def bounded(rank, mask=None):
    return fdp_bounds.bounds(template(), rank, MAX_RANK - 1, max_rank=MAX_RANK, mask=mask)


def bounded_reference(rank, mask=None):
    return ref.fdp_bounds(COUNTS, RANKS, ENVELOPE, rank, MAX_RANK, mask)


def of_set_reference(rank, selected, mask=None):
    return ref.bound_of_set(bounded_reference(rank, mask), selected)


def as_p(p_values, mask):
    return np.where(np.isnan(p_values) | (False if mask is None else ~mask), np.nan, p_values)


def dkw_entry(interpolate):
    return Entry(
        "fdp_bounds.dkw",
        lambda p_values, mask=None: fdp_bounds.dkw(
            p_values, jnp.asarray(CUTS), core.LATTICE - 1, 0.4, interpolate=interpolate, mask=mask
        )._asdict(),
        core.lattice_p,
        lambda p_values, mask=None: ref.dkw(as_p(p_values, mask), CUTS, core.LATTICE - 1, 0.4, interpolate),
        items=("p_values",),
        calibration=(),
        masks={"p_values": "mask"},
        label=f"interpolate={interpolate}",
        tolerance=2e-6,
    )


ENTRIES = [
    Entry(
        "fdp_bounds.bounds",
        lambda **a: bounded(**a)._asdict(),
        ranks,
        bounded_reference,
        items=("rank",),
        calibration=(),
        masks={"rank": "mask"},
        float_inputs=(),
    ),
    Entry(
        "fdp_bounds.of_set",
        lambda rank, selected, mask=None: fdp_bounds.of_set(bounded(rank, mask), selected),
        lambda rng, n, m: ranks(rng, n, m) | {"selected": rng.random(m) < 0.5},
        of_set_reference,
        items=("rank", "selected"),
        calibration=(),
        masks={"rank": "mask", "selected": "mask"},
        float_inputs=(),
    ),
    dkw_entry(True),
    dkw_entry(False),
    Entry(
        "fdp_bounds.dkw_offset",
        jax.vmap(lambda n, m: fdp_bounds.dkw_offset(n, m, 0.05)),
        lambda rng, n, m: {
            "n": rng.integers(1, 5000, m).astype(np.int32),
            "m": rng.integers(0, 5000, m).astype(np.int32),
        },
        lambda n, m: np.array([ref.dkw_offset(int(a), int(b), 0.05) for a, b in zip(n, m)], float),
        items=("n", "m"),
        calibration=(),
        masks={},
        float_inputs=(),
        tolerance=2e-6,
    ),
    *[
        Entry(
            "hommel.hommel",
            lambda p_values, mask=None, alpha=alpha: core.step_fields(hommel.hommel(p_values, alpha, mask=mask)),
            core.lattice_p,
            core.step_reference(ref.hommel, alpha),
            items=("p_values",),
            calibration=(),
            masks={"p_values": "mask"},
            label=f"alpha={alpha}",
        )
        for alpha in (0.3, 0.575)
    ],
    *[
        Entry(
            "local_fdr.local_fdr",
            lambda p_values, mask=None, share=share: local_fdr.local_fdr(
                p_values, null_proportion=share, mask=mask
            )._asdict(),
            core.lattice_p,
            lambda p_values, mask=None, share=share: ref.local_fdr(core.as_fractions(p_values, mask), share),
            items=("p_values",),
            calibration=(),
            masks={"p_values": "mask"},
            label=f"null_proportion={share}",
            tolerance=2e-6,
        )
        for share in (1.0, 0.5)
    ],
]

ELSEWHERE = {
    "fdp_bounds.calibrate": "random; its law in tests/kernels/test_fdp_bounds.py and tests/statistical/test_bounds.py",
    "majorant.concave_majorant": "takes points in order; tests/kernels/test_local_fdr.py",
    "online.lond": "depends on the order of the items; tests/kernels/test_online.py",
    "online.e_lond": "likewise",
    "online.lord_plus_plus": "likewise",
    "online.saffron": "likewise",
}
