"""fsd: S(x; theta) - S(x; theta'), theta' fine-tuned on unseen texts (fine-tuned score deviation, Zhang et al. 2025).

S is another score, `of=loss`, and takes its options. Fine-tuning on a few texts that the model has not seen lowers the
scores of non-members of their kind more than those of members: LOWER = MORE member-like. The authors' code has the
opposite sign, takes the perplexity where we take its logarithm, and shuffles the texts of one labelled benchmark into
those that it tunes on and those that it evaluates; here none may be both. theta' is made by `tdd.lab.train.tune`: LoRA
of rank `rank` on all matrices of attention and perceptron, `epochs` passes in batches of 8 at a learning rate that
rises to `rate` and falls to 0; the authors adapt the matrices that their library chooses, with 5% dropout. `seed`
decides the order of the texts and the first factors. Fix all of them before results are seen.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.scoring.scores import SCORES as BY_NAME
from tdd.scoring.scores import Array, Evidence, Score, ScoreRequest, check_positive
from tdd.validate import InputError

_TUNING = ("epochs", "rate", "rank", "seed")


def _check_whole(parameter: str, least: int, value: Any) -> int:
    """A whole number."""
    if not str(value).isdecimal() or not least <= int(value) < 2**32:
        raise InputError(f"{parameter}={value!s} must be a whole number of at least {least}")
    return int(value)


def _check_of(value: Any) -> str:
    """A score that the passes over the texts give without other models or texts."""
    simple = [name for name in BY_NAME if name != "fsd" and not (BY_NAME[name].passes or BY_NAME[name].corpus)]
    if value not in simple:
        raise InputError(f"of={value!s} is not a score of one pass; choose one of {', '.join(simple)}")
    return value


def _derive(given: Mapping[str, str]) -> Score:
    """The score for an `of`, with its options."""
    of = BY_NAME[_check_of(given.get("of", "loss"))]

    def finish(value: Array, evidence: Evidence, **ignored: Any) -> Array:
        return of.finish(value, evidence) - of.finish(evidence.tuned_rows, evidence)

    return dataclasses.replace(
        _FSD,
        statistics=of.statistics,
        rows=of.rows,
        finish=finish,
        checks={**_FSD.checks, **of.checks},
        defaults={**_FSD.defaults, **of.defaults},
    )


def tuning_of(requests: Sequence[ScoreRequest]) -> dict[str, Any]:
    """The options of the fine-tuning that the scores ask for.

    Raises:
      InputError: two of them ask for different ones.
    """
    asking = [request for request in requests if "tuned" in request.score.passes]
    found = [{name: request.parameters[name] for name in _TUNING} for request in asking]
    for request, options in zip(asking, found, strict=True):
        if options != found[0]:
            raise InputError(
                f"the scores {asking[0].label!r} and {request.label!r} ask for different fine-tunings; a call makes "
                "one, so compute them in two calls"
            )
    return found[0]


_FSD = Score(
    "fsd",
    "a score minus itself under the model fine-tuned on unseen texts",
    (),
    lambda stats: None,
    passes=("tuned",),
    checks={
        "of": _check_of,
        "epochs": functools.partial(_check_whole, "epochs", 1),
        "rate": functools.partial(check_positive, "rate"),
        "rank": functools.partial(_check_whole, "rank", 1),
        "seed": functools.partial(_check_whole, "seed", 0),
    },
    defaults={"of": "loss", "epochs": "3", "rate": "0.001", "rank": "16", "seed": "0"},
    of_finish=("of", *_TUNING),
    derive=_derive,
)

SCORES = (_FSD,)
