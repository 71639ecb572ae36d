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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores.parts import check_positive
from tdd.scoring.scores.score import OWN, SCORES, Array, Evidence, Pass, Score, Tuned, option, parse_score, texts_given
from tdd.validate import InputError

_TUNING = ("epochs", "rate", "rank", "seed")


def _check_whole(parameter: str, least: int, value: Any) -> int:
    """A whole number."""
    if not str(value).isdecimal() or not least <= int(value) < 2**32:
        raise InputError(f"{parameter}={value!s} must be a whole number of at least {least}")
    return int(value)


def _is_other(value: Any) -> bool:
    """Whether it is the name of another score."""
    return isinstance(value, str) and value in SCORES and value != "fsd"


def _check_of(value: Any) -> Score:
    """A score that the passes over the texts give without other models or texts."""
    score = value if isinstance(value, Score) else parse_score(value) if _is_other(value) else None
    if score is None or score.passes() or score.given:
        simple = [name for name in OWN if name != "fsd" and not ((one := SCORES[name]()).given or one.passes())]
        raise InputError(f"of={value!s} is not a score of one pass; choose one of {', '.join(simple)}")
    return score


@dataclasses.dataclass(frozen=True)
class Fsd(Score):
    """fsd: a score minus itself under the model fine-tuned on unseen texts; the file has the definition."""

    name = "fsd"
    meaning = "a score minus itself under the model fine-tuned on unseen texts"

    of: Any = option("loss", _check_of)
    epochs: Any = option("3", functools.partial(_check_whole, "epochs", 1))
    rate: Any = option("0.001", functools.partial(check_positive, "rate"))
    rank: Any = option("16", functools.partial(_check_whole, "rank", 1))
    seed: Any = option("0", functools.partial(_check_whole, "seed", 0))
    tune_on: Any = texts_given("texts that the model has not seen", known="unseen")

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        return self.of.rows(stats)

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        return self.of.finish(rows, evidence) - self.of.finish(evidence["tuned"], evidence)

    def passes(self) -> Mapping[str, Pass]:  # noqa: D102
        options = tuple((name, getattr(self, name)) for name in _TUNING)
        return {"tuned": Pass(model=Tuned(self.tune_on, options), keep=self.of)}

    def measures(self) -> Mapping[str, Callable[[str], float]]:  # noqa: D102
        return self.of.measures()

    @classmethod
    def spelled(cls, written: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Give the options that are not its own to the score that it compares."""
        own = {field.name for field in dataclasses.fields(cls)}
        named = dict(written).get("of", "loss")
        options = ",".join(f"{key}={value}" for key, value in written if key not in own)
        of = parse_score(f"{named}:{options}") if options and _is_other(named) else named
        return [*((key, value) for key, value in written if key in own and key != "of"), ("of", of)]

    @property
    def computed(self) -> tuple[str, ...]:  # noqa: D102
        return self.of.computed

    @property
    def reads(self) -> tuple[str, ...]:  # noqa: D102
        return self.of.reads

    @property
    def batchwise(self) -> bool:  # noqa: D102
        return False

    @property
    def parameters(self) -> dict[str, Any]:  # noqa: D102
        own = {name: getattr(self, name) for name in _TUNING}
        return {"of": self.of.name, **own, **self.of.parameters}

    @property
    def usual(self) -> dict[str, Any]:  # noqa: D102
        return {**super().usual, "of": "loss", **self.of.usual}
