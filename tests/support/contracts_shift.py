"""Calibration-conditional tables, weighted conformal selection, clusters and groups."""

import contracts_core as core
import jax
import jax.numpy as jnp
import numpy as np
import references as ref
import references_shift as own
from contract_entry import ELEMENTARY, FEW, NUM_TEST, Entry, at_least_one

from tdd.kernels import clusters, conditional, conformal, weighted

MAX_RANK = 61
NUM_CLUSTERS = 6


def sizes(rng, n, m):
    return {"n": rng.integers(1, MAX_RANK, m).astype(np.int32)}


def table_entry(name, call, reference, label="", roundings=FEW + 2 * ELEMENTARY):
    return Entry(
        f"conditional.{name}",
        jax.vmap(call),
        sizes,
        lambda n: np.stack([reference(int(x)) for x in n]) if len(n) else np.zeros((0, MAX_RANK + 1)),
        label=label,
        roundings=roundings,
        scale=at_least_one,
    )


def conditional_call(calibration, scores, calibration_mask=None, mask=None):
    ranked = conformal.rank(calibration, scores, null="member", calibration_mask=calibration_mask, mask=mask)
    table = conditional.dkwm_bounds(ranked.num_calibration, 0.2, max_rank=calibration.shape[0] + 1)
    return conditional.p_values(ranked, table)


def conditional_reference(calibration, scores, calibration_mask=None, mask=None):
    rank, n = ref.conformal_ranks(calibration, scores, "member", calibration_mask, mask)
    table = own.dkwm(n, 0.2, len(calibration) + 1) if n else np.array([0.0, 1.0])
    return np.array([table[r] if r > 0 else np.nan for r in rank])


def weighted_samples(rng, n, m):
    """Tied scores, and weights on a grid: sums are exact, zeros among them."""
    return core.two_samples_masked(rng, n, m) | {
        "calibration_weights": (rng.integers(0, 9, n) / 4).astype(np.float32),
        "weights": (rng.integers(0, 9, m) / 4).astype(np.float32),
    }


def selection_call(null, alpha):
    def call(**arrays):
        step = weighted.selection(**arrays, alpha=alpha, null=null, prune="deterministic")
        return {
            "selected": step.selected,
            "agrees": (step.adjusted <= jnp.asarray(alpha, step.adjusted.dtype)) == step.selected,
            "p_values": step.p_values,
            "bh_sizes": step.bh_sizes,
            "threshold": step.threshold,
            "num_selected": step.num_selected,
            "num_tests": step.num_tests,
            "min_selections": jnp.minimum(step.min_selections, step.num_tests + 1),
        }

    return call


def selection_reference(null, alpha):
    def reference(**arrays):
        selected, p, sizes, fewest = own.weighted_selection(**arrays, alpha=alpha, null=null)
        return {
            "selected": selected,
            "agrees": np.ones(len(p), bool),
            "p_values": np.array([np.nan if x is None else float(x) for x in p]),
            "bh_sizes": sizes,
            "threshold": float(max((x for x, s in zip(p, selected) if s), default=0)),
            "num_selected": int(selected.sum()),
            "num_tests": sum(x is not None for x in p),
            "min_selections": fewest,
        }

    return reference


def clustered(rng, n, m):
    arrays = core.two_samples_masked(rng, n, m)
    return {
        "scores": arrays["scores"],
        "clusters": rng.integers(0, NUM_CLUSTERS, m).astype(np.int32),
        "mask": arrays["mask"],
    }


def two_clustered(rng, n, m):
    return core.two_samples_masked(rng, n, m) | {
        "calibration_clusters": rng.integers(0, NUM_CLUSTERS, n).astype(np.int32)
    }


def two_grouped(rng, n, m):
    return core.two_samples_masked(rng, n, m) | {
        "calibration_groups": rng.integers(0, 4, n).astype(np.int32),
        "groups": rng.integers(0, 5, m).astype(np.int32),  # the last one has no calibration items
    }


def as_floats(p):
    return np.array([np.nan if x is None else float(x) for x in p])


ENTRIES = [
    table_entry(
        "simes_bounds",
        lambda n: conditional.simes_bounds(n, 0.1, max_rank=MAX_RANK),
        lambda n: own.simes(n, 0.1, MAX_RANK),
    ),
    table_entry(
        "simes_bounds",
        lambda n: conditional.simes_bounds(n, 0.01, max_rank=MAX_RANK, k=3),
        lambda n: own.simes(n, 0.01, MAX_RANK, 3),
        label="k=3",
    ),
    table_entry(
        "dkwm_bounds",
        lambda n: conditional.dkwm_bounds(n, 0.1, max_rank=MAX_RANK),
        lambda n: own.dkwm(n, 0.1, MAX_RANK),
    ),
    table_entry(
        "dkwm_bounds",
        lambda n: conditional.dkwm_bounds(n, 0.7, max_rank=MAX_RANK),
        lambda n: own.dkwm(n, 0.7, MAX_RANK),
        label="delta=0.7",
    ),
    table_entry(
        "asymptotic_bounds",
        lambda n: conditional.asymptotic_bounds(n, 0.1, max_rank=MAX_RANK),
        lambda n: own.asymptotic(n, 0.1, MAX_RANK),
    ),
    table_entry(
        "hybrid_bounds",
        lambda n: conditional.hybrid_bounds(n, 0.1, 0.04, max_rank=MAX_RANK),
        lambda n: own.hybrid(n, 0.1, 0.04, MAX_RANK),
        roundings=2 * (MAX_RANK // 2),  # the last increment, a difference of two numbers, is continued n/2 times
    ),
    Entry(
        "conditional.p_values",
        conditional_call,
        core.two_samples_masked,
        conditional_reference,
        roundings=FEW + 2 * ELEMENTARY,
        scale=at_least_one,
    ),
    *[
        Entry(
            "weighted.p_values",
            lambda null=null, **a: weighted.p_values(**a, null=null),
            weighted_samples,
            lambda null=null, **a: as_floats(own.weighted_p(**a, null=null)),
            label=null,
        )
        for null in conformal.NULLS
    ],
    *[
        Entry(
            "weighted.selection",
            selection_call(null, alpha),
            weighted_samples,
            selection_reference(null, alpha),
            label=f"{null},alpha={alpha}",
        )
        for null, alpha in (("nonmember", 0.1), ("nonmember", 0.6), ("member", 0.35))
    ],
    Entry(
        "weighted.effective_sample_size",
        weighted.effective_sample_size,
        lambda rng, n, m: {"weights": rng.random(m).astype(np.float32), "mask": rng.random(m) < 0.8},
        own.effective_sample_size,
        roundings=3 * NUM_TEST,  # a square of a sum and a sum of squares
    ),
    *[
        Entry(
            "clusters.cluster_scores",
            lambda how=aggregate, **a: clusters.cluster_scores(**a, num_clusters=NUM_CLUSTERS, aggregate=how)._asdict(),
            clustered,
            lambda how=aggregate, **a: own.cluster_scores(**a, num_clusters=NUM_CLUSTERS, aggregate=how),
            label=aggregate,
            roundings=NUM_TEST,
        )
        for aggregate in clusters.AGGREGATES
    ],
    Entry(
        "clusters.cluster_shares",
        lambda **a: clusters.cluster_shares(**a, num_clusters=NUM_CLUSTERS),
        lambda rng, n, m: {k: v for k, v in clustered(rng, n, m).items() if k != "scores"},
        own.cluster_shares,
    ),
    *[
        Entry(
            "clusters.hierarchical_p_values",
            lambda null=null, **a: clusters.hierarchical_p_values(**a, num_clusters=NUM_CLUSTERS, null=null),
            two_clustered,
            lambda null=null, **a: own.hierarchical_p(**a, null=null),
            label=null,
            roundings=NUM_CLUSTERS + FEW,
        )
        for null in conformal.NULLS
    ],
    *[
        Entry(
            "clusters.group_p_values",
            lambda null=null, **a: {
                key: value for key, value in clusters.group_p_values(**a, null=null)._asdict().items() if key != "rank"
            },
            two_grouped,
            lambda null=null, **a: {k: v for k, v in own.group_p(**a, null=null).items() if k != "rank"},
            label=null,
        )
        for null in conformal.NULLS
    ],
]

ELSEWHERE = {
    "conditional.monte_carlo_bounds": "random; laws in tests/kernels/test_conditional.py and tests/statistical",
    "clusters.draw_items": "random; laws in tests/kernels/test_clusters.py and tests/statistical",
}
