"""PTDI's studies: random splits of one pool of scores, a given table or drawn from two normal laws once and for all."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal
from tdd.procedures.ptdi import estimated, ptdi
from tdd.study.named.driver import means, over_cells, run_options
from tdd.study.named.record import Example, ExpectedBound, Figure, NamedStudy, StudyOptions
from tdd.study.pool import Pool, resample
from tdd.study.results import StudyResult
from tdd.study.runner import simulate
from tdd.validate.arrays import key_of_seed

NUM_NONMEMBERS, NUM_MEMBERS, SHIFT, POOL_SEED = 387, 388, 1.5, 0
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5)
ETA = 0.05
FRACTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
ESTIMATES = ("subtraction", "storey", "moment")
LABELS = {
    "hamming": "Hamming distance / m",
    "none": "vanilla (p-values as they are)",
    "subtraction": "scaled (subtraction estimate)",
    "storey": "scaled (Storey)",
    "moment": "scaled (adjusted moment estimate)",
}


def pool(options: StudyOptions) -> tuple[np.ndarray, np.ndarray]:
    """[N] loss-like scores and [N] bool membership."""
    if options.columns is not None:
        return options.columns.scores[0], options.columns.labels[0]
    rng = np.random.default_rng(POOL_SEED)
    is_member = np.arange(NUM_NONMEMBERS + NUM_MEMBERS) >= NUM_NONMEMBERS
    return rng.normal(size=is_member.size) + SHIFT * ~is_member, is_member


def _describe(options: StudyOptions, splits: str = "Half splits", further: str = "") -> str:
    columns = options.columns
    if columns is None:
        words = (
            f"one pool drawn with seed {POOL_SEED}: {NUM_NONMEMBERS} non-members N({SHIFT:g}, 1), "
            f"{NUM_MEMBERS} members N(0, 1)"
        )
    else:
        members, total = int(columns.labels[0].sum()), columns.labels[0].size
        words = f"{columns.source}, {columns.names[0]}: {total - members} non-members, {members} members"
    return f"{splits} of {words}{further}"


def _bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    """PTDI's bound; splits at random make the items of a pool exchangeable, so that it holds exactly."""
    if method == "moment":
        return ExpectedBound("asymptotic")
    if method != "subtraction":
        return ExpectedBound()
    scores, is_member = pool(options)
    fixed = {name: cell[name] for name in ("test_members", "calibration_ratio") if name in cell}
    if fixed:
        n, nulls, targets = Pool(scores, is_member, **fixed).sizes()
        m = nulls + targets
    else:  # n varies: the mean of 1/n is larger than 1 over the mean
        n, m = max(1, (len(scores) // 2) * float(np.mean(~is_member))), len(scores) - len(scores) // 2
    return ExpectedBound("finite-sample", (1 + 1 / m) * (1 + 1.2 / n))


def _resampled(
    options: StudyOptions, *, methods: Sequence[str] = ("none", "subtraction"), eta: float = ETA, **fixed: Any
) -> StudyResult:
    """The fixed-pool engine on the pool of the options."""
    settings = run_options(options)
    key = key_of_seed(settings.pop("seed"))
    return resample(*pool(options), methods=tuple(methods), eta=eta, key=key, **settings, **fixed)


def _over(
    field: str, values: Sequence[float], run_cell: Callable[..., StudyResult] = _resampled
) -> Callable[[StudyOptions], StudyResult]:
    """A cell for each value of an argument of `run_cell`."""
    return lambda options: over_cells([{field: value} for value in values], options, run_cell)


def _biases(options: StudyOptions) -> StudyResult:
    """The fixed-pool engine at each fraction of members, with the errors of the estimates as measures."""
    result = _over("test_members", FRACTIONS, functools.partial(_resampled, methods=ESTIMATES))(options)
    if options.shard is not None:
        return result  # the measures belong to the whole result
    scores, is_member = pool(options)
    sizes = [Pool(scores, is_member, test_members=fraction).sizes() for fraction in FRACTIONS]
    one = _errors(scores, is_member, np.array(sizes))
    draws = simulate(one, seed=options.seed, repetitions=int(np.max(result.repetitions)), batch=256)
    errors = np.stack(draws, axis=-1)  # [repetition, cell, estimate]
    measures = means({"bias": errors, "mse": errors**2})
    everywhere = {name: np.broadcast_to(value[..., None], result.fdr.shape) for name, value in measures.items()}
    return dataclasses.replace(result, measures=everywhere)


def _errors(scores: np.ndarray, is_member: np.ndarray, sizes: np.ndarray) -> Callable[[jax.Array], list[jax.Array]]:
    """Estimated less true fraction of members, [cell] for each estimate; no level enters.

    A repetition puts the non-members and the members in random order once. A cell, one row (n, null test items,
    targets) of `sizes` as `Pool.sizes` has them, takes the first of each. One program serves all cells.
    """
    values, count = jnp.asarray(scores, jnp.result_type(float)), int(np.sum(~is_member))
    place = jnp.arange(len(scores))

    def one(key: jax.Array) -> list[jax.Array]:
        drawn = jax.random.bits(key, (len(scores),)) >> 1
        _, mixed = jax.lax.sort((drawn | (jnp.uint32(1 << 31) * is_member), values), num_keys=1)

        def errors(cell: jax.Array) -> list[jax.Array]:
            n, nulls, targets = cell
            tested = jnp.where(place < count, (place >= n) & (place < n + nulls), place < count + targets)
            left_over = jnp.where(place >= count + targets, mixed, jnp.nan)[count:]  # NaN: none are left over
            known, masks = mixed[:count], {"calibration_mask": place[:count] < n, "mask": tested}
            ranked = conformal.rank(known, mixed, null="nonmember", **masks)
            estimates = [
                estimated(name, ranked, known, mixed, (left_over, known, mixed), ETA, **masks) for name in ESTIMATES
            ]
            return [1 - estimate.null_proportion - targets / (nulls + targets) for estimate in estimates]

        return jax.vmap(errors)(jnp.asarray(sizes))

    return one


def _split_example(options: StudyOptions) -> Example:
    """The sorted p-values of one random split, vanilla and scaled."""
    sample = jax.jit(Pool(*pool(options)).draw)(key_of_seed(options.seed))
    alpha = min(options.alphas, key=lambda level: abs(level - 0.2))
    selection = ptdi(
        sample.calibration,
        sample.scores,
        alpha=alpha,
        proportion="subtraction",
        calibration_mask=sample.calibration_mask,
    )
    p, factor = np.asarray(selection.p_values), 1 - float(selection.proportion)
    return Example(
        "staircase",
        {
            "p_values": {"vanilla": p, f"scaled by {factor:.2f}": p * factor},
            "false": ~np.asarray(sample.target),
            "alpha": alpha,
        },
        f"{_describe(options, 'One random split')}; {int(selection.num_calibration)} calibration items, "
        f"{int(selection.num_tests)} candidates, α = {alpha:g}. The estimated fraction of members is {1 - factor:.2f}, "
        f"the true one {float(np.mean(sample.target)):.2f}. Conformal p-values lie on a lattice: many are equal.",
        title="PTDI on one random half split of a pool",
    )


_SET_RECOVERY = ("fdr", "power", "hamming")  # tables 8 and 9 have the Hamming distance
_study = functools.partial(NamedStudy, describe=_describe, bound=_bound, repetitions=200_000, alphas=LEVELS)
_splits = functools.partial(_describe, splits="Splits")
_ESTIMATE_LABELS = {name: LABELS[name].removeprefix("scaled (").removesuffix(")") for name in ESTIMATES}

STUDIES = (
    _study(
        name="ptdi-alpha",
        title="PTDI on random half splits of a pool, by the level",
        run=_resampled,
        figure=Figure("levels", labels=LABELS, fields=_SET_RECOVERY, measures=("hamming",)),
        repetitions=1_000_000,
        example=_split_example,
    ),
    _study(
        name="ptdi-pi",
        title="PTDI on random splits of a pool, by the fraction π of members among the candidates",
        describe=_splits,
        run=_over("test_members", FRACTIONS),
        figure=Figure("levels", series="test_members", panels="method", labels=LABELS | {"test_members": "π"}),
    ),
    _study(
        name="ptdi-rho",
        title="PTDI (scaled) on random splits of a pool, by the ratio ρ of calibration items to candidates",
        describe=_splits,
        run=_over("calibration_ratio", (0.1, 0.5, 1.0)),
        figure=Figure("bands", series="", panels="calibration_ratio", labels=LABELS | {"calibration_ratio": "ρ"}),
    ),
    _study(
        name="ptdi-eta",
        title="PTDI (scaled) on random half splits of a pool, by the region η of presumed non-members",
        run=_over("eta", (0.01, 0.05, 0.1, 0.5), functools.partial(_resampled, methods=("subtraction",))),
        figure=Figure("levels", series="eta", labels=LABELS | {"eta": "η"}),
    ),
    _study(
        name="ptdi-estimators",
        title="PTDI on random half splits of a pool, by the estimate of the fraction of members",
        describe=functools.partial(
            _describe, further="; the members of the calibration half serve the moment estimate"
        ),
        run=functools.partial(_resampled, methods=("none", *ESTIMATES)),
        figure=Figure("levels", labels=LABELS, fields=_SET_RECOVERY, measures=("hamming",)),
    ),
    _study(
        name="ptdi-bias",
        title="Estimates of the fraction π of members: bias and mean squared error",
        describe=functools.partial(
            _splits,
            further="; members that are not tested serve the moment estimate, Storey's where it shows no member; the "
            "others are not cut at 0. Bias: the mean of the estimated less the true fraction, negative where it is "
            "conservative",
        ),
        run=_biases,
        figure=Figure(
            "parameter",
            x="test_members",
            x_label="fraction of members among the candidates, π",
            fields=("bias", "mse"),
            measures=("bias", "mse"),
            labels=_ESTIMATE_LABELS | {"test_members": "π", "bias": "bias", "mse": "MSE"},
        ),
        repetitions=20_000,
        alphas=(0.1,),
    ),
)
