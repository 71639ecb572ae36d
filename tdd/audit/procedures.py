"""The procedures that an audit can run, each from `Evidence` to a `Selection`, with what it has to say in words."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np

from tdd.audit.evidence import Evidence, Options
from tdd.procedures.best_score import best_score
from tdd.procedures.clusters import ClusterSelection, cluster_ptdi
from tdd.procedures.conditional import GUARANTEES as CONDITIONAL
from tdd.procedures.conditional import calibration_conditional_p_values
from tdd.procedures.jecs import GRID, jecs, jmcs
from tdd.procedures.ktd import ktd
from tdd.procedures.ptdi import PROPORTIONS, ptdi
from tdd.procedures.td4eval import td4eval
from tdd.procedures.testing import bh
from tdd.procedures.weighted import WeightedSelection, weighted_conformal_selection
from tdd.records import CombinedSelection, Guarantee, JointSelection, KnockoffSelection, Null, Selection
from tdd.validate import arrays, runs

__all__ = ["GIVEN_CALIBRATION", "GUARANTEE_ROWS", "METHODS", "PROCEDURES", "Procedure", "settled"]


GIVEN_CALIBRATION = {
    rule: Guarantee(
        "FDR <= alpha given the calibration sample, for a share 1 - delta of such samples",
        (*record.assumes, "the candidates are independent of one another"),
        record.kind,
        f"{record.source}; Benjamini & Hochberg (1995)",
    )
    for rule, record in CONDITIONAL.items()
}
GUARANTEE_ROWS = [
    ("tdd.select", f'method="conditional", rule="{rule}"', guarantee) for rule, guarantee in GIVEN_CALIBRATION.items()
]


@dataclasses.dataclass(frozen=True)
class Procedure:
    """One method as an audit sees it.

    Attributes:
      null: the null hypothesis of an item.
      columns: how many score columns decide; "several" are detectors or models.
      calibrates: whether it needs a calibration sample under every option.
      run: evidence and options -> selection.
      facts: what the report says of the result beyond the decision, as (what, value).
      warn: what the reader must know about this result.
      score: the score of texts that decides where none is named.
      options: which options it has, with their defaults.
      long_texts: what becomes of texts longer than the context where nothing is said; see `tdd.score`.
    """

    null: Null
    columns: Literal["one", "several"]
    calibrates: bool
    run: Callable[[Evidence, Options], Selection]
    facts: Callable[[Evidence, Selection], list[tuple[str, str]]] = lambda evidence, selection: []
    warn: Callable[[Evidence, Selection], list[str]] = lambda evidence, selection: []
    score: str = "min_k_plus_plus"
    long_texts: str = "window"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _ptdi(evidence: Evidence, options: Options) -> Selection:
    (calibration,), (scores,) = evidence.calibration, evidence.candidates
    how: dict[str, Any] = {"alpha": options.alpha, "proportion": options.proportion, "eta": options.eta}
    if evidence.clusters:
        own = evidence.calibration_clusters
        key = jax.random.key(options.seed)
        return cluster_ptdi(calibration, scores, own, evidence.clusters, unit=_any(options.unit), key=key, **how)
    return ptdi(calibration, scores, members=evidence.members if evidence.members.size else None, **how)


def _td4eval(evidence: Evidence, options: Options) -> Selection:
    split = evidence.split if evidence.split.size else None
    random = options.combine == "random" or (options.combine == "split_weights" and split is None)
    return td4eval(
        evidence.calibration,
        evidence.candidates,
        alpha=options.alpha,
        combine=_any(options.combine),
        rule=_any(options.rule or None),
        weights=options.weights or None,
        split=split,
        key=jax.random.key(options.seed) if random else None,  # elsewhere a key would break ties at random
    )


def _ktd(evidence: Evidence, options: Options) -> Selection:
    how: dict[str, Any] = {}
    if options.rule == "conformal":
        how = {
            "calibration": evidence.calibration[0],
            "calibration_knockoffs": evidence.calibration_knockoffs,
            "proportion": options.proportion,
        }
    return ktd(evidence.candidates[0], evidence.knockoffs, alpha=options.alpha, rule=_any(options.rule), **how)


def _jmcs(evidence: Evidence, options: Options) -> Selection:
    return jmcs(
        evidence.calibration, evidence.candidates, alpha=options.alpha, rule=_any(options.rule), eta=options.eta
    )


def _jecs(evidence: Evidence, options: Options) -> Selection:
    return jecs(evidence.calibration, evidence.candidates, alpha=options.alpha, grid=options.grid or GRID)


def _best_score(evidence: Evidence, options: Options) -> Selection:
    arrays.check_choice(options.rule, ("deterministic", "randomized"), "rule")
    key = jax.random.key(options.seed) if options.rule == "randomized" else None
    return best_score(evidence.calibration, evidence.candidates, alpha=options.alpha, key=key)


def _conditional(evidence: Evidence, options: Options) -> Selection:
    """BH on p-values that hold for the calibration sample at hand."""
    (calibration,), (scores,) = evidence.calibration, evidence.candidates
    key = jax.random.key(options.seed) if options.rule == "monte_carlo" else None
    draws = {} if key is None else {"key": key, "num_draws": max(999, math.ceil(1 / options.delta))}
    p_values = functools.partial(
        calibration_conditional_p_values,
        calibration,
        null="nonmember",
        delta=options.delta,
        method=_any(options.rule),
        **draws,
    )
    p = p_values(scores)
    step, n = bh(p, options.alpha), np.count_nonzero(~np.isnan(calibration))
    m = int(step.num_tests)
    least = float(p_values([np.nanmin(calibration) - 1])[0])  # of the most extreme score there could be
    return Selection(
        selected=step.reject,
        p_values=p,
        adjusted=step.adjusted,
        threshold=step.threshold,
        proportion=jax.numpy.zeros(()),
        num_selected=step.num_rejected,
        num_tests=step.num_tests,
        num_calibration=jax.numpy.int32(n),
        min_selections=jax.numpy.int32(min(m + 1, max(1, math.ceil(least * m / options.alpha - 1e-6)))),
        method=f"conditional/{options.rule}",
        null="nonmember",
        guarantee=GIVEN_CALIBRATION[options.rule],
    )


def _weighted(evidence: Evidence, options: Options) -> Selection:
    (calibration,), (scores,) = evidence.calibration, evidence.candidates
    return weighted_conformal_selection(
        calibration,
        scores,
        evidence.calibration_weights,
        evidence.weights,
        alpha=options.alpha,
        null="nonmember",
        prune=_any(options.rule),
        key=jax.random.key(options.seed),
    )


def _any(value: str | None) -> Any:
    """A name that the method itself checks against its choices."""
    return value


def _weights(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, CombinedSelection)
    weights, alone = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, alone, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]


def _sample_size(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, WeightedSelection)
    return [("effective calibration size", f"{float(selection.effective_sample_size):.1f} equally weighted items")]


def _clusters(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    if not isinstance(selection, ClusterSelection):
        return []
    number, chosen = int(selection.num_clusters), int(np.asarray(selection.cluster_selected).sum())
    return [
        ("clusters", f"{number} of candidates, {int(selection.num_calibration)} of calibration items"),
        ("clusters with a selected item", str(chosen)),
    ]


def _knockoffs(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, KnockoffSelection)
    cut = float(selection.cut)
    threshold = f"{cut:.4g}" if np.isfinite(cut) else "none qualifies"
    meaning = _STATISTICS[selection.method.rpartition("/")[2]]
    return [
        ("knockoffs an item", str(evidence.knockoffs.shape[1])),
        ("statistic of an item", meaning),
        ("threshold of the statistic", threshold),
    ]


_W = "W = mean score of its knockoffs - its own; large = member"
_STATISTICS = {
    "ktd": _W,
    "conformal": f"{_W}; ranked among those of the calibration items",
    "multi": "how far its score is below its best knockoff's; negative where a knockoff scores lowest",
    "derandomized": "its e-value, averaged over the knockoffs",
    "closed": "its e-value, averaged over the knockoffs",
}


def _envelope(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, JointSelection)
    envelope = selection.envelope
    if not bool(envelope.fitted):
        return [("envelope", "not fitted: too few p-values above every grid point")]
    return [("envelope", f"slope {float(envelope.slope):.3g} up to tau = {float(envelope.tau):.3g}")]


def _warn_weights(evidence: Evidence, selection: Selection) -> list[str]:
    assert isinstance(selection, CombinedSelection)
    if selection.method.endswith("/cauchy") and not np.asarray(selection.num_rejected_alone).any():
        return ["no detector rejects anything alone, so the detectors were weighted equally"]
    return []


def _warn_identical(evidence: Evidence, selection: Selection) -> list[str]:
    same = int((evidence.knockoffs == evidence.candidates[0][:, None]).any(axis=1).sum())
    alone = evidence.knockoffs.shape[1] == 1 and not selection.method.endswith("conformal")
    if not same or not (alone or selection.method.endswith("multi")):
        return []
    return [f"{same} candidates have the same score as one of their knockoffs; a tie is never selected"]


def _warn_envelope(evidence: Evidence, selection: Selection) -> list[str]:
    assert isinstance(selection, JointSelection)
    if not bool(selection.envelope.fitted):
        return ["the envelope could not be fitted, so this is the selection of JMCS"]
    return []


PROCEDURES: dict[str, Procedure] = {
    "ptdi": Procedure(
        "nonmember", "one", True, _ptdi, _clusters, options={"proportion": "storey", "eta": 0.05, "unit": "cluster"}
    ),
    "best_score": Procedure("nonmember", "several", True, _best_score, _weights, options={"rule": "deterministic"}),
    "conditional": Procedure("nonmember", "one", True, _conditional, options={"rule": "simes"}),
    "weighted": Procedure(
        "nonmember", "one", True, _weighted, _sample_size, options={"rule": "heterogeneous", "weight_column": None}
    ),
    "ktd": Procedure(
        "nonmember",
        "one",
        False,
        _ktd,
        _knockoffs,
        _warn_identical,
        "grad_norm",
        "truncate",
        options={"rule": "multi", "proportion": "storey"},
    ),
    "td4eval": Procedure(
        "member",
        "several",
        True,
        _td4eval,
        _weights,
        _warn_weights,
        options={"combine": "pooled_rank", "rule": "", "weights": (), "split_column": None},
    ),
    "jmcs": Procedure("member", "several", True, _jmcs, options={"rule": "bh", "eta": 0.5}),
    "jecs": Procedure("member", "several", True, _jecs, _envelope, _warn_envelope, options={"grid": ()}),
}


def settled(method: str, alpha: float, delta: float, seed: int, **given: Any) -> tuple[Options, dict[str, Any]]:
    """The options of a run, None where not given, and the method's own of them as a record of the run.

    Raises:
      InputError: an option that the method does not have, or a level out of range.
    """
    own = PROCEDURES[method].options
    owners = {name: ",".join(key for key, one in PROCEDURES.items() if name in one.options) for name in given}
    runs.check_used(method, **{name: (value, owners[name]) for name, value in given.items()})
    runs.check_proportion_used(method, given.get("rule"), given.get("proportion"))
    arrays.check_level(alpha)
    arrays.check_level(delta, "delta")
    chosen = {name: default if given.get(name) is None else given[name] for name, default in own.items()}
    if method == "ktd" and chosen["rule"] != "conformal":
        del chosen["proportion"]
    fields = {field.name for field in dataclasses.fields(Options)}
    options = Options(
        alpha,
        method,
        delta=float(delta),
        seed=arrays.check_seed(seed),
        **{k: v for k, v in chosen.items() if k in fields},
    )
    arrays.check_choice(options.proportion, PROPORTIONS, "proportion")
    arrays.check_level(options.eta, "eta")
    if options.unit == "item":
        runs.check_unscaled(**{name: given.get(name) for name in ("proportion", "eta")})
        chosen = {name: value for name, value in chosen.items() if name not in ("proportion", "eta")}
    return options, {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}


METHODS: dict[str, Null] = {name: procedure.null for name, procedure in PROCEDURES.items()}
"""The null that each procedure tests."""
