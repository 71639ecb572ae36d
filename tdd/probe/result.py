"""What one evaluation of a probe finds, as a pytree of arrays."""

from __future__ import annotations

import jax

from tdd.records import pytree

__all__ = ["GRAD_NORM_QUANTILES", "ProbeResult"]

GRAD_NORM_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Which quantiles of the suspects' gradient norms are reported."""


@pytree()
class ProbeResult:
    """Scores and decisions at one set of parameters. m suspects, n references, c canaries, k canary references.

    Scores are loss-like: LOWER = MORE member-like. A score that is not finite is left out of every comparison.

    Attributes:
      suspect_scores: [m] float32.
      reference_scores: [n] float32.
      p_values: [m] conformal p-values of "this suspect is a non-member", (1 + #{references <= it}) / (n + 1); NaN where
        the score is not finite.
      adjusted: [m] adjusted p-values of PTDI; `selected == (adjusted <= alpha)`. NaN likewise.
      selected: [m] bool, suspects that this one evaluation selects as members: FDR <= alpha if it was chosen before
        any score was seen, not if it was chosen for its alarm; see `ProbeRecord.flagged`.
      num_flagged: [] int32, how many.
      proportion: [] estimated share of members among the suspects; 0 under proportion="none", and negative where the
        suspects look even less like members than the references.
      canary_scores: [c] float32; [0] without canaries, as the next three.
      canary_rank: [c] int32, 1 + the number of canary references that score as low or lower; k + 1 where the canary's
        own score is not finite.
      canary_exposure: [c] log2(k + 1) - log2(rank), in bits (Carlini et al. 2019, "The secret sharer", definition 3,
        over the canary and its references).
      canary_p_values: [c] rank / (k + 1).
      grad_norm_quantiles: [5] minimum, quartiles and maximum of the norms of the gradients of the suspects' summed
        losses; [0] where they are not asked for.
      num_not_finite: [] int32, scores of any role that are not finite.
    """

    suspect_scores: jax.Array
    reference_scores: jax.Array
    p_values: jax.Array
    adjusted: jax.Array
    selected: jax.Array
    num_flagged: jax.Array
    proportion: jax.Array
    canary_scores: jax.Array
    canary_rank: jax.Array
    canary_exposure: jax.Array
    canary_p_values: jax.Array
    grad_norm_quantiles: jax.Array
    num_not_finite: jax.Array
