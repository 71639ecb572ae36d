"""Simultaneous bounds, Hommel's procedure, local false discovery rates; online procedures depend on the order."""

from fractions import Fraction

import contracts_core as core
import jax
import jax.numpy as jnp
import numpy as np
import references as exact
import references_bounds as ref
from contract_entry import ELEMENTARY, Entry

from tdd.kernels import fdp_bounds, hommel, local_fdr

MAX_RANK = 31
COUNTS = np.array([4, 8, 16, 40], np.int32)
RANKS = np.array([1, 2, 3, 5, 8, 13, 21, 30], np.int32)
MEAN = COUNTS[:, None] * RANKS / MAX_RANK
ENVELOPE = np.minimum(np.ceil(MEAN + 1.2 * np.sqrt(MEAN) + 0.6), COUNTS[:, None]).astype(np.int32)
CUTS = np.array([0, 1, 3, 8, 20, 39, 40]) / core.LATTICE


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


OFFSET = 3 * ELEMENTARY + 4
"""Of the last step of the fixed point, which contracts: two logarithms, a root, and their arguments."""


def exactly(p_values, mask):
    """The numbers of the type as they are, not the lattice beside them."""
    return [Fraction(float(x)) if real else None for x, real in zip(p_values, exact.real(p_values, mask))]


def as_p(p_values, mask):
    return np.where(np.isnan(p_values) | (False if mask is None else ~mask), np.nan, p_values)


def dkw_entry(interpolate):
    return Entry(
        "fdp_bounds.dkw",
        lambda p_values, mask=None: fdp_bounds.dkw(
            p_values, jnp.asarray(CUTS, p_values.dtype), core.LATTICE - 1, 0.4, interpolate=interpolate, mask=mask
        )._asdict(),
        core.lattice_p,
        lambda p_values, mask=None: ref.dkw(
            as_p(p_values, mask), CUTS.astype(p_values.dtype), core.LATTICE - 1, 0.4, interpolate
        ),
        label=f"interpolate={interpolate}",
        roundings=OFFSET,
    )


ENTRIES = [
    Entry("fdp_bounds.bounds", lambda **a: bounded(**a)._asdict(), ranks, bounded_reference),
    Entry(
        "fdp_bounds.of_set",
        lambda rank, selected, mask=None: fdp_bounds.of_set(bounded(rank, mask), selected),
        lambda rng, n, m: ranks(rng, n, m) | {"selected": rng.random(m) < 0.5},
        of_set_reference,
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
        roundings=OFFSET,
    ),
    *[
        Entry(
            "hommel.hommel",
            lambda p_values, mask=None, alpha=alpha: core.step_fields(hommel.hommel(p_values, alpha, mask=mask)),
            core.lattice_p,
            core.step_reference(ref.hommel, alpha),
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
            lambda p_values, mask=None, share=share: ref.local_fdr(exactly(p_values, mask), share),
            label=f"null_proportion={share}",
            roundings=6,  # a height and a difference, their quotient, and the share over it
        )
        for share in (1.0, 0.5)
    ],
]

ELSEWHERE = {
    "fdp_bounds.calibrate": "random; its law in tests/kernels/test_fdp_bounds.py and tests/statistical/test_bounds.py",
    "null_paths.calibrate": "no rows of items; tests/kernels/test_null_paths.py",
    "null_paths.probability_under": "likewise",
    "majorant.concave_majorant": "takes points in order; tests/kernels/test_local_fdr.py",
    "online.lond": "depends on the order of the items; tests/kernels/test_online.py",
    "online.e_lond": "likewise",
    "online.lord_plus_plus": "likewise",
    "online.saffron": "likewise",
}
