"""The knockoff filter, its relatives, and e-values."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import references as ref
import references_knockoff as knock
from contract_entry import ELEMENTARY, FEW, NUM_TEST, Entry, at_least_one
from scipy import stats

from tdd.kernels import evalues, knockoff, knockoff_symmetry

COPIES, TRIALS = 3, 130


def mask_of(rng, m):
    return rng.random(m) < 0.85 if m > 1 else np.ones(m, bool)


def signed(rng, n, m, ties=True):
    """Statistics with ties, zeros of both signs, a NaN, and more positive than negative ones."""
    w = (rng.integers(-2, 6, m) if ties else rng.normal(size=m) + 1).astype(np.float32)
    if m > 4:
        w[2], w[3], w[4] = np.nan, -0.0, 0.0
    return {"w": w, "mask": mask_of(rng, m)}


def continuous(rng, n, m):
    return signed(rng, n, m, ties=False)


def many_signed(rng, n, m):
    w = rng.integers(-2, 6, (m, COPIES)).astype(np.float32)
    if m > 3:
        w[2, 1] = np.nan
    return {"w": w, "mask": mask_of(rng, m)}


def copies(rng, n, m):
    original, others = (
        rng.integers(0, 8, m).astype(np.float32) - 2,
        rng.integers(0, 9, (m, COPIES)).astype(np.float32),
    )
    if m > 3:
        original[0], others[2, 1] = np.nan, np.nan
    return {"original": original, "knockoffs": others, "mask": mask_of(rng, m)}


def e_values(rng, n, m):
    """Multiples of m/(alpha k), so that equalities are common."""
    e = (rng.choice([0, 1, 2, 5, 10, 20, 40], m) * max(m, 1) / 16).astype(np.float32)
    if m > 4:
        e[1], e[3] = np.nan, 0
    return {"e_values": e, "mask": mask_of(rng, m)}


def two_samples(rng, n, m):
    calibration, scores = (rng.integers(-6, 7, k).astype(np.float32) for k in (n, m))
    scores -= 2
    if m > 3:
        scores[2] = np.nan
    if n > 3:
        calibration[1] = np.nan
    return {
        "calibration": calibration,
        "scores": scores,
        "calibration_mask": rng.random(n) < 0.8,
        "mask": mask_of(rng, m),
    }


def trials(rng, n, m):
    total = rng.integers(0, 120, m).astype(np.int32)
    return {"successes": (total * rng.random(m)).round().astype(np.int32), "trials": total}


def filter_reference(alpha, offset, losses):
    def reference(w, mask=None):
        values = knock.kept(w, mask)
        tau, reject, adjusted = knock.knockoff_filter(values, alpha, offset, losses)
        return {
            "reject": reject,
            "adjusted": adjusted,
            "threshold": tau,
            "num_rejected": int(reject.sum()),
            "num_tests": sum(x is not None for x in values),
        }

    return reference


def filter_entry(alpha, offset, losses, make=signed):
    return Entry(
        "knockoff.select",
        lambda w, mask=None: knockoff.select(w, alpha, offset=offset, num_knockoffs=losses, mask=mask)._asdict(),
        make,
        filter_reference(alpha, offset, losses),
        label=f"alpha={alpha},offset={offset},k={losses},{make.__name__}",
    )


def w_reference(original, knockoffs, mask=None):
    w = np.array([float(np.mean([float(x) - float(own) for x in row])) for own, row in zip(original, knockoffs)])
    return np.where(ref.real(w, mask), w, np.nan) if len(w) else w


def randomized_e_bh(e_values):
    """On 4e, whose smallest rejected value is four times that of e."""
    found = knock.e_bh([None if e is None else 4 * e for e in e_values], 0.4)
    return found | {"threshold": found["threshold"] / 4}


def e_bh_reference(alpha):
    return lambda e_values, mask=None: knock.e_bh(knock.kept(e_values, mask), alpha)


def conformal_entry(null, alpha):
    return Entry(
        "evalues.conformal_e_values",
        lambda calibration, scores, calibration_mask=None, mask=None: evalues.conformal_e_values(
            calibration, scores, alpha, null=null, calibration_mask=calibration_mask, mask=mask
        ),
        two_samples,
        lambda calibration, scores, calibration_mask=None, mask=None: knock.conformal_e_values(
            calibration, scores, alpha, null, calibration_mask, mask
        ),
        label=f"{null},alpha={alpha}",
    )


def signs_reference(w, mask=None):
    return dict(zip(knockoff_symmetry.Signs._fields, knock.count_signs(knock.kept(w, mask), 0.3), strict=True))


def binomial_reference(losses):
    def reference(successes, trials):
        tails = [knock.binomial_tails(int(x), int(n), losses) for x, n in zip(successes, trials)]
        share = [x / n if n else math.nan for x, n in zip(successes, trials)]
        return {
            "log_upper": np.array([t[0] for t in tails]),
            "log_lower": np.array([t[1] for t in tails]),
            "statistic": np.array(share),
        }

    return reference


def binomial_entry(losses):
    kernel = jax.vmap(
        lambda successes, trials: knockoff_symmetry.binomial_tails(
            successes, trials, num_knockoffs=losses, bound=TRIALS
        )._asdict()
    )
    return Entry(
        "knockoff_symmetry.binomial_tails",
        lambda successes, trials: kernel(successes, trials),
        trials,
        binomial_reference(losses),
        label=f"k={losses}",
        roundings=TRIALS + 2 * ELEMENTARY,
        scale=at_least_one,
    )


def signed_rank_reference(w, mask=None):
    z = knock.signed_rank_z(knock.kept(w, mask))
    return {"log_upper": stats.norm.logsf(z), "log_lower": stats.norm.logcdf(z), "statistic": z}


ENTRIES = [
    Entry("knockoff.w_statistics", lambda **a: knockoff.w_statistics(**a), copies, w_reference),
    Entry(
        "knockoff.threshold",
        lambda w, mask=None: knockoff.threshold(w, 0.25, mask=mask),
        signed,
        lambda w, mask=None: knock.knockoff_filter(knock.kept(w, mask), 0.25)[0],
    ),
    filter_entry(0.25, 1, 1),
    filter_entry(0.2, 0, 1),
    filter_entry(0.1, 1, 3),
    filter_entry(0.3, 1, 1, continuous),
    Entry(
        "knockoff.multi_statistics",
        lambda **a: knockoff.multi_statistics(**a)._asdict(),
        copies,
        lambda **a: dict(zip(knockoff.MultiStatistics._fields, knock.multi(**a), strict=True)),
    ),
    Entry(
        "knockoff.derandomized_e_values",
        lambda w, mask=None: knockoff.derandomized_e_values(w, 0.3, mask=mask),
        many_signed,
        lambda w, mask=None: knock.derandomized(w, 0.3, mask),
    ),
    Entry(
        "knockoff.fdp_bound",
        lambda w, mask=None: knockoff.fdp_bound(w, 0.3, mask=mask)._asdict(),
        signed,
        lambda w, mask=None: knock.fdp_bound(knock.kept(w, mask), 0.3),
    ),
    Entry(
        "knockoff_symmetry.count_signs",
        lambda w, mask=None: knockoff_symmetry.count_signs(w, tail=0.3, mask=mask)._asdict(),
        signed,
        signs_reference,
    ),
    binomial_entry(1),
    binomial_entry(4),
    Entry(
        "knockoff_symmetry.signed_rank_tails",
        lambda w, mask=None: knockoff_symmetry.signed_rank_tails(w, mask=mask)._asdict(),
        signed,
        signed_rank_reference,
        roundings=NUM_TEST + 3 * ELEMENTARY,
        scale=at_least_one,
    ),
    Entry(
        "evalues.e_bh",
        lambda e_values, mask=None: evalues.e_bh(e_values, 0.1, mask=mask)._asdict(),
        e_values,
        e_bh_reference(0.1),
    ),
    Entry(
        "evalues.e_bh",
        lambda e_values, mask=None: evalues.e_bh(e_values, 0.4, mask=mask)._asdict(),
        e_values,
        e_bh_reference(0.4),
        label="alpha=0.4",
    ),
    Entry(
        "evalues.e_bh",
        lambda e_values, mask=None: evalues.e_bh(e_values, 0.4, mask=mask, uniform=jnp.float32(0.25))._asdict(),
        e_values,
        lambda e_values, mask=None: randomized_e_bh(knock.kept(e_values, mask)),
        label="randomised",
    ),
    Entry(
        "evalues.closed_e_bh",
        lambda e_values, mask=None: evalues.closed_e_bh(e_values, 0.4, mask=mask)._asdict(),
        e_values,
        lambda e_values, mask=None: knock.closed_e_bh(knock.kept(e_values, mask), 0.4),
        label="alpha=0.4",
        roundings=NUM_TEST + FEW,
    ),
    Entry(
        "evalues.average",
        lambda e_values: evalues.average(e_values.T),
        lambda rng, n, m: {"e_values": rng.integers(0, 50, (m, COPIES)).astype(np.float32)},
        lambda e_values: np.array([float(Fraction(int(row.sum()), COPIES)) for row in e_values]),
    ),
    conformal_entry("nonmember", 0.3),
    conformal_entry("member", 0.3),
    conformal_entry("nonmember", 0.1),
]

ELSEWHERE = {
    "evalues.unit_e_values": "takes rows of scores and units; tests/kernels/test_evalues.py",
    "knockoff.path": "in the order of |W|, not of the items; compared through knockoff.select and fdp_bound",
    "knockoff.first_place": "a place in that order; compared as the threshold of knockoff.select",
    "knockoff.adjust": "rounding at alpha: reject == (adjusted <= alpha) in tests/kernels/test_knockoff.py",
}
