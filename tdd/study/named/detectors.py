"""Samples of the TD4Eval studies: several detectors, calibration labels that may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import CorrelatedDetectors
from tdd.study.named.pools import dense_ranks
from tdd.study.named.record import Options, Promise
from tdd.study.sample import Sample

__all__ = ["METHOD_LABELS", "DetectorPool", "Mislabelled", "design", "design_words", "names", "promise"]

SIGNALS, CORRELATION, NUM_CALIBRATION, NUM_TESTS, CLEAN = (2.5, 1.5, 1.0, 0.5, 0.0), 0.3, 400, 200, 0.5
VALIDATION = 0.3

METHOD_LABELS = {
    "td4eval/cauchy": "Cauchy by rejections (the paper)",
    "td4eval/pooled_rank": "pooled ranks (exact)",
    "td4eval/split_weights": "split weights (exact)",
    "td4eval/average": "equal weights",
    "td4eval/max": "best detector",
    "td4eval/random": "random weights",
    "td4eval/bh_average": "BH-Average (mean p-value)",
    "td4eval/bh_max": "BH-Max (smallest p-value)",
}


@pytree("num_calibration", "num_tests")
class Mislabelled:
    """Several detectors; some calibration items that are taken for members are clean in truth.

    Attributes:
      num_calibration: n, wrong ones included.
      num_tests: m.
      clean: share of the test items that are clean: the targets.
      wrong: share of the calibration items that are clean.
      signal: [K] by how much clean items score higher, in standard deviations.
      correlation: between any two detectors.
    """

    null: ClassVar[Null] = "member"

    num_calibration: int = NUM_CALIBRATION
    num_tests: int = NUM_TESTS
    clean: Any = CLEAN
    wrong: Any = 0.0
    signal: Any = SIGNALS
    correlation: Any = CORRELATION

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        signal = jnp.asarray(self.signal, jnp.result_type(float))
        own, which = jax.random.split(key)
        inner = CorrelatedDetectors(
            num_detectors=signal.shape[0],
            num_calibration=self.num_calibration,
            num_tests=self.num_tests,
            target_share=self.clean,
            signal=signal,
            correlation=self.correlation,
            labels="random",
        )
        sample = inner.draw(own)
        wrong = jax.random.bernoulli(which, self.wrong, (self.num_calibration,))
        calibration = sample.calibration + signal[:, None] * wrong
        # The validation set is the calibration items, taken for members, and as many that are known to be clean.
        clean = inner.draw(jax.random.fold_in(own, 1)).calibration + signal[:, None]
        validation = {
            "validation": jnp.concatenate([calibration, clean], axis=1),
            "validation_target": jnp.arange(2 * self.num_calibration) >= self.num_calibration,
        }
        return sample._replace(calibration=calibration, extra=validation)


@pytree()
class DetectorPool:
    """A given table of detectors, split anew: 30 % for validation, whose members calibrate, 70 % for testing.

    Attributes:
      scores: [K, N] loss-like scores.
      is_member: [N] bool.
      wrong: share of the validation labels that are turned round.

    References: TD4Eval, section 5.1 and figure 3.
    """

    null: ClassVar[Null] = "member"

    scores: Any
    is_member: Any
    wrong: Any = 0.0

    def draw(self, key: jax.Array) -> Sample:
        """One split, with a `calibration_mask`."""
        split, which = jax.random.split(key)
        scores, is_member = jnp.asarray(self.scores, jnp.result_type(float)), jnp.asarray(self.is_member)
        size = max(1, int(VALIDATION * scores.shape[1]))
        first, rest = jnp.split(jax.random.permutation(split, scores.shape[1]), [size])
        believed = is_member[first] ^ jax.random.bernoulli(which, self.wrong, (size,))
        validation = {"validation": scores[:, first], "validation_target": ~believed}
        return Sample(scores[:, first], scores[:, rest], ~is_member[rest], calibration_mask=believed, extra=validation)


def design(options: Options) -> Mislabelled | DetectorPool:
    """Of the given table, or synthetic."""
    columns = options.columns
    return Mislabelled() if columns is None else DetectorPool(dense_ranks(columns.scores), columns.labels[0])


def names(options: Options) -> tuple[str, ...]:
    """What the detectors are called."""
    if options.columns is not None:
        return options.columns.names
    return tuple(f"detector {signal:g} sd" for signal in SIGNALS)


def design_words(options: Options) -> str:
    """The design in words."""
    if options.columns is not None:
        columns = options.columns
        return (
            f"{columns.source}, {len(columns.names)} detectors, {columns.labels.shape[1]} items: 30 % for validation, "
            "whose members calibrate, 70 % for testing"
        )
    shifts = ", ".join(f"{signal:g}" for signal in SIGNALS)
    return (
        f"{len(SIGNALS)} detectors with correlation {CORRELATION:g} and clean items {shifts} sd higher; "
        f"{NUM_CALIBRATION} calibration items, {NUM_TESTS} candidates"
    )


def promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    """Whether the rule holds its level in finite samples, which takes right labels."""
    del options
    exact = method.removeprefix("td4eval/") in ("pooled_rank", "split_weights")
    return Promise("finite-sample" if exact and not cell.get("wrong") else "none")
