"""Samples and words of the JECS studies: synthetic labels, or a given table with one label a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Null, pytree
from tdd.study.designs import JointLabels
from tdd.study.named.pools import dense_ranks
from tdd.study.named.record import Columns, Example, Options, Promise
from tdd.study.sample import Sample
from tdd.validate.errors import InputError

__all__ = ["METHOD_LABELS", "JointPool", "design", "design_words", "envelope_example", "first_models", "promise"]

METHOD_LABELS = {
    "union": "union of selections",
    "intersection": "intersection",
    "jmcs/bh": "JMCS",
    "jmcs/storey": "JMCS, Storey",
    "jecs": "JECS",
}
_GCR = "GCR: mean share of the selected items that a model was trained on"
_ASYMPTOTIC = ("jecs",)
_INVALID = ("union", "intersection")


@pytree("num_shared")
class JointPool:
    """A given table, split anew: half of the items that all models were trained on calibrate, all others are audited.

    Attributes:
      scores: [K, N] loss-like scores, one row a model.
      is_member: [K, N] bool.
      num_shared: counted from `is_member`; leave it out.
    """

    null: ClassVar[Null] = "member"

    scores: Any
    is_member: Any
    num_shared: int | None = None

    def __post_init__(self):
        if self.num_shared is None and isinstance(self.is_member, np.ndarray):
            object.__setattr__(self, "num_shared", int(np.all(self.is_member, axis=0).sum()))

    def draw(self, key: jax.Array) -> Sample:
        """One split."""
        scores, is_member = jnp.asarray(self.scores, jnp.result_type(float)), jnp.asarray(self.is_member)
        shared = jnp.all(is_member, axis=0)
        apart = jnp.argsort(~shared, stable=True)
        count = self.num_shared or 0
        mixed = jax.random.permutation(key, apart[:count])
        rest = jnp.concatenate([mixed[count // 2 :], apart[count:]])
        audited = is_member[:, rest]
        return Sample(
            scores[:, mixed[: count // 2]], scores[:, rest], ~jnp.any(audited, axis=0), extra={"member": audited}
        )


def design(options: Options, *, signal: float) -> Any:
    """Of the given table, or synthetic."""
    if options.columns is None:
        return JointLabels(signal=signal)
    columns = options.columns
    _check_shared(columns)
    return first_models(columns, len(columns.names))


def first_models(columns: Columns, num_models: int) -> JointPool:
    """The table of the first models alone."""
    return JointPool(dense_ranks(columns.scores[:num_models]), columns.labels[:num_models])


def design_words(options: Options, synthetic: str) -> str:
    """The design in words."""
    if options.columns is None:
        return f"{synthetic}. {_GCR}"
    columns = options.columns
    shared = int(columns.labels.all(0).sum())
    return (
        f"{columns.source}, {len(columns.names)} models, {columns.labels.shape[1]} items: a random half of the "
        f"{shared} items that all were trained on calibrates, all others are audited. {_GCR}"
    )


def promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    """Of synthetic data, whose scores are independent over models.

    Of a given table nothing is known: the items that all models saw calibrate, and those that some saw may differ.
    """
    del cell
    if method in _INVALID:
        return Promise("none")
    if options.columns is not None:
        return Promise("none")
    return Promise("asymptotic" if method.startswith(_ASYMPTOTIC) else "finite-sample")


def envelope_example(options: Options, *, signal: float = 3.0) -> Example:
    """The largest p-values of one draw, the envelope that JECS fits on them, and where each selection stops."""
    import warnings

    from tdd.procedures.jecs import jecs, jmcs

    sample = jax.jit(design(options, signal=signal).draw)(jax.random.key(options.seed))
    alpha = min(options.alphas, key=lambda level: abs(level - 0.3))
    both = jax.jit(lambda *scores: (jmcs(*scores, alpha=alpha), jecs(*scores, alpha=alpha)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few items: the caption says how many
        plain, fitted = both(sample.calibration, sample.scores)
    found = {"JMCS": plain, "JECS": fitted}
    p_values = np.asarray(fitted.p_values)
    cuts = {
        f"{name}: {int(one.num_selected)} selected": float(p_values[np.asarray(one.selected)].max(initial=0.0))
        for name, one in found.items()
    }
    n, m = int(fitted.num_calibration), int(fitted.num_tests)
    arrays = {
        "p_values": p_values,
        "false": ~np.asarray(sample.target),
        "x": np.asarray(fitted.envelope.x),
        "value": np.asarray(fitted.envelope.value),
        "tau": float(fitted.envelope.tau),
        "slope": float(fitted.envelope.slope),
        "cuts": cuts,
    }
    words = design_words(options, f"five models, signal {signal:g}").removesuffix(f". {_GCR}")
    return Example(
        "envelope",
        arrays,
        f"One draw of {words}; n = {n} calibration items, m = {m} candidates, α = {alpha:g}.",
        title="Joint selection on one draw: the largest p-values and the envelope of JECS",
    )


def _check_shared(columns: Columns) -> None:
    if columns.labels.all(0).sum() < 4 or columns.labels.all():
        raise InputError(
            f"{columns.source}: {int(columns.labels.all(0).sum())} of {columns.labels.shape[1]} items are members "
            "of all models; at least 4 are needed to calibrate, and others to audit"
        )
