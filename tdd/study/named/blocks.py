"""JECS's study of the training fraction: blocks of items that all models, no model or some models were trained on."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import JointLabels, Sample
from tdd.study.named import jecs
from tdd.study.named.driver import GridRun
from tdd.study.named.record import Figure, StudyOptions
from tdd.study.named.thinned import Thinned

CLEAN, REST = 1_200, 200
FRACTIONS = {"training_fraction": (0.1, 0.3, 0.5, 0.7, 0.9)}


@pytree()
class ThreeBlocks:
    """Joint labels of three blocks: items of all models calibrate, clean items and the rest are audited.

    Each model is trained on each item of the rest with probability `training_fraction`, and on no clean item. The
    blocks are in the proportion 3 to 6 to 1, as the counts of the paper's table of data sets imply.

    References: JECS, appendix D.2.
    """

    null: ClassVar[Null] = "member"

    training_fraction: Any = 0.5

    def draw(self, key: jax.Array) -> Sample:
        """One data set; `extra["member"]` [K, m] says which model was trained on which item."""
        share = jnp.where(jnp.arange(CLEAN + REST) < CLEAN, 0.0, self.training_fraction)
        return JointLabels(num_tests=CLEAN + REST, signal=jecs.SIGNAL, member_share=share).draw(key)


def _design(options: StudyOptions) -> ThreeBlocks | Thinned:
    columns = options.columns
    return ThreeBlocks() if columns is None else Thinned(jecs.joint_pool(columns, len(columns.names)))


STUDIES = (
    jecs.joint_study(
        name="jecs-training-fraction",
        title="Selections for several models at once, by the training fraction",
        synthetic=f"five models, each trained on this fraction of {REST} candidates at random and on none of "
        f"{CLEAN:,} others, 600 calibration items, signal {jecs.SIGNAL:g}",
        given="candidates that any model was trained on are kept with this probability",
        run=GridRun(_design, jecs.JOINT, FRACTIONS, lambda columns: FRACTIONS),
        figure=Figure(
            "parameter",
            x="training_fraction",
            x_label="training fraction ρ",
            error="GCR",
            labels=jecs.LABELS | {"training_fraction": "ρ"},
        ),
        alphas=(0.1, 0.2, 0.3),
    ),
)
