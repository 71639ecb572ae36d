"""The envelope of the largest p-value and the decisions on it."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import references_envelope as ref
from contract_entry import FEW, Entry

from tdd.kernels import envelope

POINTS = 40  # n + 1
MAX_RANK = POINTS + 17  # static bound, with room
COARSE = (0.25, 0.5)
CHOICES = {"nearest": lambda size: 1, "tenth": lambda size: -(-size // 10), "all": lambda size: size}
"""Numbers of neighbours k by the size N of the tail: the smallest, one in between, the largest."""


def joint_ranks(rng, n, m):
    """Pure items at small ranks, contaminated ones anywhere; ties, and some ranks that stand for a missing item."""
    rank = np.where(rng.random(m) < 0.55, rng.integers(1, 6, m), rng.integers(1, POINTS + 1, m)).astype(np.int32)
    if m > 5:
        rank[3] = MAX_RANK + 1
    return {"rank": rank, "mask": rng.random(m) < 0.9 if m > 1 else np.ones(m, bool)}


def exact_p(rank, mask=None):
    real = rank <= MAX_RANK if mask is None else (rank <= MAX_RANK) & mask
    return [Fraction(int(r), POINTS) if ok else None for r, ok in zip(rank, real)]


def fit_fields(fitted):
    found = fitted._asdict()
    del found["anchor"]
    return found | {"line": envelope_line(fitted)}


def envelope_line(fitted):
    """rho (n + 1) = pi0·slope·m on 7 items, from its integer factors."""
    numerator, denominator = envelope.line_scale(fitted, POINTS - 1, 7)
    value = jnp.asarray(POINTS, fitted.tau.dtype)
    for factor in numerator:
        value = value * factor.astype(fitted.tau.dtype)
    for factor in denominator:
        value = value / factor.astype(fitted.tau.dtype)
    return value.astype(fitted.tau.dtype)


def places(neighbours, m):
    return np.array([neighbours(size) for size in range(m + 1)], np.int32)


def fit_reference(grid, neighbours=ref.ceil_sqrt):
    def reference(rank, mask=None):
        p = exact_p(rank, mask)
        found, g = ref.fit(p, grid, neighbours)
        fitted = bool(np.isfinite([float(x) for x in found["slopes"]]).any())
        kept = sum(x is not None for x in p)
        return {
            "x": np.array([np.nan if x is None else float(x) for x in p]),
            "value": np.array([np.nan if x is None else float(g(x)) for x in p]),
            "tau": float(found["tau"]),
            "slope": float(found["slope"]),
            "grid": np.array([float(tau) for tau in grid]),
            "slopes": np.array([float(x) for x in found["slopes"]]),
            "num_above": np.array(found["num_above"]),
            "fitted": fitted,
            "null_proportion": float(found["pi0"]),
            "line": float(found["pi0"] * found["slope"] * kept) if fitted else 7.0,
        }

    return reference


def bh_call(alpha, grid):
    def call(rank, mask=None):
        fitted = envelope.fit(rank, POINTS - 1, max_rank=MAX_RANK, grid=grid, mask=mask)
        return envelope.adaptive_bh(rank, POINTS - 1, alpha, fitted, max_rank=MAX_RANK, mask=mask)._asdict()

    return call


def bh_reference(alpha, grid):
    def reference(rank, mask=None):
        p = exact_p(rank, mask)
        reject, adjusted, fitted, _ = ref.jecs(p, alpha, grid)
        return {
            "reject": np.array(reject, bool),
            "adjusted": np.array(adjusted),
            "threshold": float(max((x for x, r in zip(p, reject) if r), default=0)),
            "num_rejected": sum(reject),
            "num_tests": sum(x is not None for x in p),
            "null_proportion": float(fitted["pi0"]),
        }

    return reference


def identity_reference(rank, mask=None):
    p = np.array([np.nan if x is None else float(x) for x in exact_p(rank, mask)])
    return {"x": p, "value": p, "tau": 0.0, "slope": 1.0, "fitted": False, "null_proportion": 1.0}


def identity_call(rank, mask=None):
    found = envelope.identity(rank, POINTS - 1, max_rank=MAX_RANK, mask=mask)._asdict()
    return {name: found[name] for name in ("x", "value", "tau", "slope", "fitted", "null_proportion")}


def entry(kernel, call, reference, label=""):
    return Entry(
        f"envelope.{kernel}",
        call,
        joint_ranks,
        reference,
        label=label,
        roundings=2 * FEW,  # products and quotients of fractions that are rounded themselves
    )


ENTRIES = [
    *[
        entry(
            "fit",
            lambda rank, mask=None, grid=grid: fit_fields(
                envelope.fit(rank, POINTS - 1, max_rank=MAX_RANK, grid=grid, mask=mask)
            ),
            fit_reference(grid),
            label,
        )
        for grid, label in ((ref.GRID, "tenths"), (COARSE, "coarse"))
    ],
    *[
        entry(
            "fit",
            lambda rank, mask=None, own=own: fit_fields(
                envelope.fit(
                    rank, POINTS - 1, max_rank=MAX_RANK, grid=ref.GRID, neighbours=places(own, rank.shape[0]), mask=mask
                )
            ),
            fit_reference(ref.GRID, own),
            f"neighbours={label}",
        )
        for label, own in CHOICES.items()
    ],
    *[
        entry("adaptive_bh", bh_call(alpha, grid), bh_reference(alpha, grid), f"alpha={alpha}")
        for alpha, grid in ((0.1, ref.GRID), (0.35, ref.GRID), (0.8, COARSE))
    ],
    entry("identity", identity_call, identity_reference),
]

_ANCHOR = "the integers inside envelope.fit and envelope.adaptive_bh, by whose entries they are tested"

ELSEWHERE = {
    "envelope.line_scale": "its factors are part of the entries of envelope.fit",
    **{
        f"envelope_anchor.{name}": _ANCHOR
        for name in ("candidates", "largest_tail_count", "line_scale", "slope", "tail_sides")
    },
    **{
        f"joint_cuts.{name}": "takes a histogram, not items; tests/kernels/test_joint_cuts.py"
        for name in ("bh_cut", "jecs_cuts", "storey_scale")
    },
    **{
        f"joint_resample.{name}": "its axes are repetitions and a pool; tests/kernels/test_joint_resample.py"
        for name in ("by_lane", "count_ranks", "drawn", "pool")
    },
    **{
        f"joint_fresh.{name}": "draws what it counts; tests/kernels/test_joint_fresh.py, in distribution"
        for name in ("cell_probabilities", "count_ranks")
    },
}
