"""Published models of which it is known what they were trained on, as recipes: who has the weights runs one command."""

from __future__ import annotations

import dataclasses

__all__ = ["RECIPES", "Recipe"]

_ONE_PASS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is known of a family of models, and what is measured under one of them.

    Attributes:
      title: the models and their source.
      truth: how it is known who was trained on, and how the file of texts is made.
      model: an example of a model.
      scores: scores by default.
      null: whether a twin belongs to it that was trained on none of the texts: nothing may be found there.
      checkpoints: an example of checkpoints of its training, in their order.
      deduplicate: whether texts of both sides that repeat one another are left out.
    """

    title: str
    truth: str
    model: str
    scores: tuple[str, ...] = _ONE_PASS
    null: bool = False
    checkpoints: tuple[str, ...] = ("MODEL@step1000", "MODEL@step2000")
    deduplicate: bool = True


RECIPES = {
    "hubble": Recipe(
        "Hubble: Wei et al. (2025), arXiv 2510.19811",
        "passages were drawn at random to be inserted never, once, or many times; copies = the number of insertions. "
        "The standard twin was trained without insertions",
        "allegrolab/hubble-1b-100b_toks-perturbed-hf",
        null=True,
        checkpoints=("MODEL@STEP", "MODEL@step48000"),
        deduplicate=False,  # versions of a passage at several counts are drawn, not found
    ),
    "olmo": Recipe(
        "OLMo: Groeneveld et al. (2024), arXiv 2402.00838",
        "members are read from the published training order; non-members are texts of the same sources from after the "
        "data were collected, so that time is told apart as well: see the blind baseline",
        "allenai/OLMo-1B-hf",
    ),
    "pythia": Recipe(
        "Pythia on the Pile: Biderman et al. (2023), arXiv 2304.01373",
        "members are drawn from the Pile's training split, non-members from its validation split, which was divided "
        "from it at random; repeated texts are left out (Duan et al. 2024 find near repetitions across the splits)",
        "EleutherAI/pythia-1.4b",
        scores=(*_ONE_PASS, "lowercase", "surp", "acmia"),
    ),
}
"""Name -> recipe."""
