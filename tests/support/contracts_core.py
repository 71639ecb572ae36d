"""Ranks, conformal p-values, step-up procedures, proportions, the lattice, token statistics."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import references as ref
from contract_entry import ELEMENTARY, NUM_CALIBRATION, Entry, at_least_one

from tdd.kernels import conformal, lattice, proportion, ranks, stepup, token_stats

LATTICE = 40
MAX_RANK = LATTICE + 30  # static bound, with room for padding
WIDTH, VOCABULARY = 6, 17


def two_samples(rng, n, m, ties=True):
    draw = (
        (lambda k: rng.integers(-6, 7, k).astype(np.float32))
        if ties
        else (lambda k: rng.normal(size=k).astype(np.float32))
    )
    calibration, scores = draw(n), draw(m) - 2
    if m > 3:
        scores[2] = np.nan
    if n > 3:
        calibration[1] = np.nan
    return {"calibration": calibration, "scores": scores}


def two_samples_masked(rng, n, m):
    out = two_samples(rng, n, m)
    return out | {"calibration_mask": rng.random(n) < 0.8, "mask": rng.random(m) < 0.8}


def lattice_p(rng, n, m):
    """p-values r/LATTICE with ties, some of them NaN."""
    p = rng.integers(1, 1 + LATTICE, m) / LATTICE
    if m > 3:
        p[: m // 2] = rng.integers(1, 4, m // 2) / LATTICE
        p[2] = np.nan
    return {"p_values": p, "mask": rng.random(m) < 0.85 if m > 1 else np.ones(m, bool)}


def lattice_ranks(rng, n, m):
    rank = np.where(rng.random(m) < 0.5, rng.integers(1, 4, m), rng.integers(1, LATTICE + 1, m)).astype(np.int32)
    return {"rank": rank, "mask": rng.random(m) < 0.85 if m > 1 else np.ones(m, bool)}


def as_fractions(p, mask=None):
    ok = ref.real(p, mask)
    return [Fraction(round(float(x) * LATTICE), LATTICE) if r else None for x, r in zip(p, ok)]


def step_reference(procedure, alpha):
    def reference(p_values, mask=None):
        p = as_fractions(p_values, mask)
        reject, adjusted = procedure(p, alpha)
        chosen = [x for x, r in zip(p, reject) if r]
        return {
            "reject": np.array(reject, bool),
            "adjusted": np.array(adjusted),
            "threshold": float(max(chosen, default=0)),
            "num_rejected": sum(reject),
            "num_tests": sum(x is not None for x in p),
        }

    return reference


def step_fields(step):
    return {name: getattr(step, name) for name in ("reject", "adjusted", "threshold", "num_rejected", "num_tests")}


def step_entry(name, procedure, alpha, **options):
    kernel = getattr(stepup, name)
    return Entry(
        f"stepup.{name}",
        lambda p_values, mask=None: step_fields(kernel(p_values, alpha, mask=mask, **options)),
        lattice_p,
        step_reference(procedure, alpha),
        label=f"alpha={alpha}" + "".join(f",{k}={v}" for k, v in options.items()),
    )


def storey_p(lambda_, cap):
    def procedure(p, alpha):
        kept = [x for x in p if x is not None]
        pi0 = Fraction(1 + sum(x >= ref.fraction(lambda_) for x in kept), max(len(kept), 1)) / (
            1 - ref.fraction(lambda_)
        )
        return ref.bh(p, alpha, min(pi0, 1) if cap else pi0)

    return procedure


def bh_ranks_reference(rank, mask=None, alpha=0.1):
    ok = np.ones(len(rank), bool) if mask is None else mask
    ok = ok & (rank <= MAX_RANK)
    p = [Fraction(int(r), LATTICE) if v else None for r, v in zip(rank, ok)]
    reject, adjusted = ref.bh(p, alpha)
    return {
        "reject": np.array(reject, bool),
        "adjusted": np.array(adjusted),
        "threshold": float(max((x for x, r in zip(p, reject) if r), default=0)),
        "num_rejected": sum(reject),
        "num_tests": sum(x is not None for x in p),
    }


def rank_reference(null):
    def reference(calibration, scores, calibration_mask=None, mask=None):
        rank, n = ref.conformal_ranks(calibration, scores, null, calibration_mask, mask)
        valid = np.array(rank) > 0
        return {
            "p_values": np.array([float(Fraction(r, n + 1)) if r > 0 else np.nan for r in rank]),
            "num_calibration": n,
            "num_tests": int(valid.sum()),
            "valid": valid,
        }

    return reference


def rank_call(null):
    def call(calibration, scores, calibration_mask=None, mask=None):
        ranked = conformal.rank(calibration, scores, null=null, calibration_mask=calibration_mask, mask=mask)
        return {
            "p_values": conformal.p_values(ranked),
            "num_calibration": ranked.num_calibration,
            "num_tests": ranked.num_tests,
            "valid": ranked.valid,
        }

    return call


def counts_reference(calibration, scores, calibration_mask=None, mask=None):
    less, equal, total, valid = ref.counts(calibration, scores, calibration_mask, mask)
    return {"less": less, "equal": equal, "num_calibration": total, "valid": valid}


def masked_to_nan(values, mask):
    return values if mask is None else np.where(mask, values, np.nan)


def storey_call(calibration, scores, calibration_mask=None, mask=None):
    ranked = conformal.rank(calibration, scores, null="nonmember", calibration_mask=calibration_mask, mask=mask)
    return proportion.storey(
        ranked.rank, ranked.valid, ranked.num_calibration, max_rank=calibration.shape[0] + 1, eta=0.15
    ).null_proportion


def storey_reference(calibration, scores, calibration_mask=None, mask=None):
    rank, n = ref.conformal_ranks(calibration, scores, "nonmember", calibration_mask, mask)
    return float(ref.storey_pi0(rank, n, 0.15))


def subtraction_reference(calibration, scores, calibration_mask=None, mask=None):
    return float(ref.subtraction_pi0(masked_to_nan(calibration, calibration_mask), masked_to_nan(scores, mask), 0.15))


def moment_reference(members, calibration, scores, calibration_mask=None, mask=None, printed=False):
    masked = masked_to_nan(calibration, calibration_mask), masked_to_nan(scores, mask)
    return ref.moment_pi0(members, *masked, printed=printed)


def products(rng, n, m):
    a = rng.integers(0, 2**31, m).astype(np.int32)
    b = np.where(rng.random(m) < 0.5, a, rng.integers(0, 2**31, m)).astype(np.int32)
    c = rng.integers(1, 2**31, m).astype(np.int32)
    return {"a": a, "b": b, "c": c}


def product_reference(a, b, c):
    return np.array([int(x) * int(z) * 7 <= int(z) * int(y) * 7 for x, y, z in zip(a, b, c)], bool)


def quotients(rng, n, m):
    b = rng.integers(1, 2000, m).astype(np.int32)
    t = rng.integers(0, 1200, m).astype(np.int32)
    return {"a": np.maximum(t * b + rng.integers(-1, 2, m), 0).astype(np.int32), "b": b}


def floor_reference(a, b):
    return np.array([min(int(x) // int(y), 1000) for x, y in zip(a, b)], int)


def ceil_reference(a, b):
    return np.array([min(-(-int(x) // int(y)), 1001) for x, y in zip(a, b)], int)


def min_rejections_reference(a, b):
    # the smallest k >= 1 with a/b <= k/10
    return np.array([min(max(-(-10 * int(x) // int(y)), 1), 1001) for x, y in zip(a, b)], int)


def members_too(rng, n, m):
    out = two_samples(rng, n, m, ties=False) | {"members": rng.normal(size=n).astype(np.float32) - 4}
    return out | {"calibration_mask": rng.random(n) < 0.9, "mask": rng.random(m) < 0.9}


def token_rows(rng, n, m):
    hidden = rng.normal(size=(m, WIDTH)).astype(np.float32) * rng.choice([0.3, 3.0], size=(m, 1)).astype(np.float32)
    readout = np.random.default_rng(5).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    return {
        "hidden": hidden,
        "readout": readout,
        "targets": rng.integers(0, VOCABULARY, m).astype(np.int32),
        "mask": rng.random(m) < 0.8 if m > 1 else np.ones(m, bool),
    }


def logit_rows(rng, n, m):
    rows = token_rows(rng, n, m)
    return {"logits": rows["hidden"] @ rows["readout"].T, "targets": rows["targets"]}


def token_reference(logits, targets, mask=None):
    """Every statistic of every row in float64; 0 where masked."""
    z = np.asarray(logits, np.float64)
    log_p = z - z.max(-1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
    p, rows = np.exp(log_p), np.arange(len(z))
    mu = (p * log_p).sum(-1)
    log_p_y, p_y = log_p[rows, targets], p[rows, targets]
    others = p.sum(-1, keepdims=True) - p  # 1 - p_v
    cross = p * np.log(np.maximum(others, 1e-300))
    found = {
        "log_prob": log_p_y,
        "mu": mu,
        "sigma": np.sqrt((p * (log_p - mu[:, None]) ** 2).sum(-1)),
        "renyi_half": 2 * np.log(np.sqrt(p).sum(-1)),
        "renyi_two": -np.log((p**2).sum(-1)),
        "renyi_inf": -log_p.max(-1),
        "m_entropy": -(1 - p_y) * log_p_y - (cross.sum(-1) - cross[rows, targets]),
        "rank": (z > z[rows, targets][:, None]).sum(-1),
    }
    return {name: value if mask is None else np.where(mask, value, 0) for name, value in found.items()}


def from_hidden(hidden, readout, targets, mask=None):
    return token_reference(np.asarray(hidden, np.float64) @ np.asarray(readout, np.float64).T, targets, mask)


def renyi_reference(order):
    """Rényi entropy of one order in float64."""

    def entropies(logits, targets, mask=None):
        z = np.asarray(logits, np.float64)
        p = np.exp(z - z.max(-1, keepdims=True))
        values = np.log(((p / p.sum(-1, keepdims=True)) ** order).sum(-1)) / (1 - order)
        return values if mask is None else np.where(mask, values, 0)

    return entropies


def with_mask(targets, mask):
    return jnp.ones(targets.shape, bool) if mask is None else mask


def logit_terms(exact, arrays):
    """Products and exponents: the largest sum of magnitudes that a logit is, and log V."""
    if "logits" in arrays:
        return np.maximum(np.abs(exact), np.abs(arrays["logits"]).max(initial=0) + np.log(VOCABULARY))
    terms = np.abs(arrays["hidden"]) @ np.abs(arrays["readout"]).T
    return np.maximum(np.abs(exact), terms.max(initial=0) + np.log(VOCABULARY))


def token_entry(kernel, call, make, reference):
    """A product of the width, two exponents, sums over the vocabulary and their logarithm or root."""
    return Entry(
        kernel,
        call,
        make,
        reference,
        roundings=WIDTH + 2 * VOCABULARY + 3 * ELEMENTARY,
        scale=logit_terms,
        always_single=True,
    )


ENTRIES = [
    token_entry(
        "token_stats.token_stats",
        lambda hidden, readout, targets, mask=None: token_stats.token_stats(
            hidden, readout, targets, with_mask(targets, mask), chunk=8, block=None
        )._asdict(),
        token_rows,
        from_hidden,
    ),
    token_entry(
        "token_stats.token_log_prob",
        lambda hidden, readout, targets, mask=None: token_stats.token_log_prob(
            hidden, readout, targets, with_mask(targets, mask), chunk=8, block=None
        ),
        token_rows,
        lambda **arrays: from_hidden(**arrays)["log_prob"],
    ),
    token_entry(
        "token_stats.token_stats_from_logits",
        lambda logits, targets, mask=None: token_stats.token_stats_from_logits(
            logits, targets, with_mask(targets, mask), chunk=8, block=None
        )._asdict(),
        lambda rng, n, m: logit_rows(rng, n, m) | {"mask": rng.random(m) < 0.8},
        token_reference,
    ),
    token_entry(
        "token_stats.tile_statistics",
        lambda logits, targets: token_stats.tile_statistics(logits, targets, None)._asdict(),
        logit_rows,
        token_reference,
    ),
    token_entry(
        "token_stats.tile_log_prob",
        lambda logits, targets: token_stats.tile_log_prob(logits, targets, None),
        logit_rows,
        lambda **arrays: token_reference(**arrays)["log_prob"],
    ),
    token_entry(
        "token_stats.token_renyi",
        lambda hidden, readout, targets, mask=None: token_stats.token_renyi(
            hidden, readout, targets, with_mask(targets, mask), order=1.6, chunk=8, block=None
        ),
        token_rows,
        lambda hidden, readout, targets, mask=None: renyi_reference(1.6)(
            np.asarray(hidden, np.float64) @ np.asarray(readout, np.float64).T, targets, mask
        ),
    ),
    token_entry(
        "token_stats.token_renyi_from_logits",
        lambda logits, targets, mask=None: token_stats.token_renyi_from_logits(
            logits, targets, with_mask(targets, mask), order=0.7, chunk=8, block=None
        ),
        lambda rng, n, m: logit_rows(rng, n, m) | {"mask": rng.random(m) < 0.8},
        renyi_reference(0.7),
    ),
    token_entry(
        "token_stats.tile_renyi",
        lambda logits, targets: token_stats.tile_renyi(logits, 0.3, None),
        logit_rows,
        renyi_reference(0.3),
    ),
    Entry("ranks.counts", lambda **a: ranks.counts(**a)._asdict(), two_samples_masked, counts_reference),
    *[
        Entry("conformal.rank", rank_call(null), two_samples_masked, rank_reference(null), label=null)
        for null in conformal.NULLS
    ],
    step_entry("bh", ref.bh, 0.1),
    step_entry("bh", ref.bh, 0.35),
    step_entry("by", ref.by, 0.3),
    step_entry("holm", ref.holm, 0.5),
    step_entry("hochberg", ref.hochberg, 0.5),
    step_entry("bonferroni", ref.bonferroni, 0.575),
    step_entry("storey_bh", storey_p(0.5, False), 0.1, lambda_=0.5, cap=False),
    step_entry("storey_bh", storey_p(0.3, True), 0.2, lambda_=0.3, cap=True),
    Entry(
        "stepup.bh_ranks",
        lambda rank, mask=None: step_fields(stepup.bh_ranks(rank, LATTICE - 1, 0.1, max_rank=MAX_RANK, mask=mask)),
        lattice_ranks,
        bh_ranks_reference,
    ),
    Entry("proportion.storey", storey_call, two_samples_masked, storey_reference),
    Entry(
        "proportion.subtraction",
        lambda **a: proportion.subtraction(**a, eta=0.15).null_proportion,
        two_samples_masked,
        subtraction_reference,
    ),
    *(
        Entry(
            f"proportion.{name}",
            lambda members, calibration, scores, calibration_mask=None, mask=None, name=name: (
                getattr(proportion, name)(
                    members, calibration, scores, calibration_mask=calibration_mask, mask=mask
                ).null_proportion
            ),
            members_too,
            functools.partial(moment_reference, printed=name == "moment_paper"),
            roundings=3 * NUM_CALIBRATION,  # three means
            scale=at_least_one,
        )
        for name in ("moment", "moment_paper")
    ),
    Entry("lattice.product_le", lambda a, b, c: lattice.product_le((a, c, 7), (c, b, 7)), products, product_reference),
    Entry(
        "lattice.floor_ratio", jax.vmap(lambda a, b: lattice.floor_ratio((a,), (b,), 1000)), quotients, floor_reference
    ),
    Entry("lattice.ceil_ratio", jax.vmap(lambda a, b: lattice.ceil_ratio((a,), (b,), 1000)), quotients, ceil_reference),
    Entry(
        "stepup.min_rejections",
        jax.vmap(lambda a, b: stepup.min_rejections(0.1, 1000, scale=((a,), (b,)))),
        lambda rng, n, m: {
            "a": rng.integers(0, 5000, m).astype(np.int32),
            "b": rng.integers(1, 90, m).astype(np.int32),
        },
        min_rejections_reference,
    ),
    Entry(
        "proportion.tail_size",
        jax.vmap(lambda n: proportion.tail_size(n, 0.07, 4000)),
        lambda rng, n, m: {"n": rng.integers(0, 4000, m).astype(np.int32)},
        lambda n: np.array([ref.tail(int(x), 0.07) for x in n], int),
    ),
    Entry(
        "proportion.none",
        jax.vmap(lambda n, m: proportion.none(n, m)),
        lambda rng, n, m: {"n": rng.integers(1, 90, m).astype(np.int32), "m": rng.integers(1, 90, m).astype(np.int32)},
        lambda n, m: (np.ones(len(m)), m, n + 1),
    ),
]

ELSEWHERE = {
    "fill_down.fill_down": "fills tables by a function that it is given; tests/kernels/test_resample.py",
    "ranks.common": "no arithmetic; test_double_precision, under strict promotion",
    "ranks.at_least_single": "no arithmetic; test_double_precision, under strict promotion",
    "ranks.comparable": "no arithmetic; test_mixed_precision",
    "platforms.fused_on": "no arithmetic; tests/portability/test_lowering.py",
    "platforms.fast_products": "no arithmetic; tests/portability/test_lowering.py",
    "platforms.full_precision": "no arithmetic; tests/portability/test_lowering.py",
    "platforms.one_device": "no arithmetic; tests/portability/test_lowering.py",
    "token_stats_fused.fused_token_stats": "slow off an accelerator; tests/kernels/test_token_stats.py",
    "token_stats_fused.takes": "no arithmetic; tests/portability/test_lowering.py",
    "platforms.over_rows": "one reduction; tests/kernels/test_platforms.py",
    "platforms.product": "a matrix product; tests/kernels/test_platforms.py",
    "platforms.quotient": "one division; tests/kernels/test_platforms.py",
    "platforms.stored": "the identity; tests/kernels/test_platforms.py",
    "platforms.cumsum": "depends on the order of the items; tests/kernels/test_platforms.py",
    "platforms.cummax": "depends on the order of the items; tests/kernels/test_platforms.py",
    "platforms.cummin": "depends on the order of the items; tests/kernels/test_platforms.py",
    "ranks.order_keys": "every score of ranks.counts goes through it; order and NaN in tests/kernels/test_conformal.py",
    "ranks.scores_of_keys": "takes ranks.order_keys back; tests/kernels/test_rows.py",
    "ranks.finder": "every count of ranks.counts goes through it",
    "conformal.p_values": "one division; its values are compared in the conformal.rank entries",
    "conformal.randomized_p_values": "random; laws in tests/kernels/test_conformal.py and tests/statistical",
    "lattice.as_level": "host arithmetic on one number; tests/kernels/test_lattice.py",
    "lattice.is_exact": "static predicate; tests/kernels/test_lattice.py",
    "lattice.in_range": "a traced level out of range gives NaN, in every entry of stepup",
    "lattice.settle": "rounding at alpha: reject == (adjusted <= alpha) in every entry of stepup",
}
