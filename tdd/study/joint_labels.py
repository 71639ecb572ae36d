"""Items with one membership label a model, and detection scores to match: JECS's synthetic set-up.

N items are shared out once: a share of them is known to be in the training data of all K models and calibrates, the
others are audited. An audited item is a member of each model with the same probability, independently over items and
models; it is jointly pure if it is a member of none. Scores are N(-signal·member, 1), independent over items and
models: loss-like, so that members score lower (the paper's sign is the other one).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["JointSample", "draw"]


class JointSample(NamedTuple):
    """One draw of the set-up.

    Attributes:
      calibration: [K, n] loss-like scores of items that every model was trained on.
      scores: [K, m] loss-like scores of the audited items.
      member: [K, m] bool, whether the model was trained on the item.
      contaminated: [m] bool, whether at least one model was: the joint null.
    """

    calibration: jax.Array
    scores: jax.Array
    member: jax.Array
    contaminated: jax.Array


def draw(
    key: jax.Array,
    *,
    num_models: int = 5,
    num_calibration: int = 600,
    num_tests: int = 1400,
    signal: float = 2.0,
    member_share: float = 0.25,
) -> JointSample:
    """Draw labels and scores; the defaults are 30 % and 70 % of 2,000 items and five models.

    Args:
      key: PRNG key.
      num_models: K.
      num_calibration: n.
      num_tests: m.
      signal: distance between the mean scores of non-members and members, in standard deviations.
      member_share: probability that an audited item is a member of one model.

    Returns:
      `JointSample`.

    References: JECS, appendix E.1.
    """
    labels, calibration, scores = jax.random.split(key, 3)
    member = jax.random.bernoulli(labels, member_share, (num_models, num_tests))
    return JointSample(
        jax.random.normal(calibration, (num_models, num_calibration)) - signal,
        jax.random.normal(scores, (num_models, num_tests)) - signal * member,
        member,
        jnp.any(member, axis=0),
    )
