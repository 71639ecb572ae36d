"""Scores of texts from token statistics; all loss-like: LOWER = MORE member-like.

A user writes one by its name and options: "loss", "min_k:k=0.1", "max_renyi:gamma=inf,k=0".
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.records import TokenStats
from tdd.validate import InputError

Pass = Literal["lowercase", "reference", "gradient", "prefix", "member_prefix", "population", "tuned"]
"""A pass beyond the one over the texts themselves; those of reference models are made once for each of them."""

Array = Any
"""A NumPy or JAX array; scores are written once for both."""


class Evidence(NamedTuple):
    """Evidence beside the statistics of the text: [B] if nothing else is said, or None if no score asks for it.

    Losses are means over tokens; where a reference model has another tokenizer, those of reference models and of the
    population are per byte.

    Attributes:
      compressed_bytes: Length of zlib.compress(text as UTF-8), header included.
      lowercase_loss: Loss of the lowercased text.
      reference_loss: [K, B], loss of the text under each reference model.
      tokens_per_byte: Scored tokens per byte of scored text under the model; 1 where tokenizers agree.
      grad_norm: Norm of the gradient of the text's loss, summed over its scored tokens, over all parameters.
      log_frequency: [V], log-frequency of every token in a corpus, above minus infinity.
      prefix_loss: Loss of the text behind a prefix of known non-members.
      member_prefix_loss: Loss of the text behind a prefix of known members.
      population_loss: [Z], losses of the population.
      reference_population_loss: [K, Z], those under each reference model.
      tuned_rows: The tokens' part of the score, as `Score.rows` returns it, under the model after fine-tuning.
    """

    compressed_bytes: Array = None
    lowercase_loss: Array = None
    reference_loss: Array = None
    tokens_per_byte: Array = 1.0
    grad_norm: Array = None
    log_frequency: Array = None
    prefix_loss: Array = None
    member_prefix_loss: Array = None
    population_loss: Array = None
    reference_population_loss: Array = None
    tuned_rows: Array = None


def _unchanged(value: Array, evidence: Evidence) -> Array:
    return value


@dataclasses.dataclass(frozen=True)
class Score:
    """One loss-like score: LOWER = MORE member-like.

    Attributes:
      name: The name.
      meaning: One line for listings.
      statistics: Fields of `TokenStats` that `rows` reads; the model computes all but "tokens". With options that read
        fewer they are all computed, so that stored statistics serve every option.
      rows: `(stats, **parameters) -> [B]`, the part that comes from the tokens of the text.
      finish: `(rows, evidence, **parameters) -> [B]`, the part that needs other passes or the text itself.
      passes: Further passes over the texts that `finish` needs.
      checks: Parameter -> check of its value; the check returns what `rows` receives.
      defaults: Parameter -> default.
      corpus: True if `rows` has a parameter `log_frequency`, as in `Evidence`.
      of_finish: Parameters that `finish` receives; `rows` receives the others.
      least_references: Fewest reference models, if it needs any.
      derive: For a score that is made of another one: options as written -> the score that they mean.
      reads: Parameters -> those of `statistics` that `rows` reads with them; None where it always reads all.
    """

    name: str
    meaning: str
    statistics: tuple[str, ...]
    rows: Callable[..., Array]
    finish: Callable[..., Array] = _unchanged
    passes: tuple[Pass, ...] = ()
    checks: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict, hash=False)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    corpus: bool = False
    of_finish: tuple[str, ...] = ()
    least_references: int = 1
    derive: Callable[[Mapping[str, str]], Score] | None = None
    reads: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """Arguments of `tdd.score` that the score needs beside model and texts."""
        named = ("tune_on" if name == "tuned" else name for name in self.passes)
        return ("corpus",) * self.corpus + tuple(name for name in named if name in BESIDE)


class _ByName(Mapping[str, Score]):
    """Scores by name; the file of a score is imported when the score is looked up."""

    _MODULES: Mapping[str, str] = {
        "loss": "tokens", "zlib": "tokens", "lowercase": "passes", "reference": "passes", "min_k": "tokens",
        "min_k_plus_plus": "tokens", "m_entropy": "tokens", "max_renyi": "tokens", "grad_norm": "passes",
        "acmia": "tokens", "surp": "tokens", "dc_pdd": "tokens", "camia": "camia", "diversity": "tokens",
        "recall": "passes", "con_recall": "passes", "lira": "passes", "rmia": "passes", "fsd": "fsd",
    }  # fmt: skip

    def __getitem__(self, name: str) -> Score:
        scores = importlib.import_module(f"{__name__}.{self._MODULES[name]}").SCORES
        return next(score for score in scores if score.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._MODULES)

    def __len__(self) -> int:
        return len(self._MODULES)


SCORES: Mapping[str, Score] = _ByName()
"""Name -> score."""

BESIDE: Mapping[str, str] = {
    "reference": "a second model: pass reference=<folder or hub id>, or a list of several",
    "corpus": "a corpus of texts: pass corpus=<file, list or table>",
    "prefix": "texts that the model has not seen: pass prefix=<file, list or table>",
    "population": "texts that no model was trained on: pass population=<file, list or table>",
    "tune_on": "texts that the model has not seen: pass tune_on=<file, list or table>",
    "member_prefix": "texts that the model was trained on: pass member_prefix=<file, list or table>",
}
"""Argument of `tdd.score` -> what it is, for the scores that need it."""

TEXTS_BESIDE = tuple(argument for argument in BESIDE if argument != "reference")
"""Those that are texts."""


@dataclasses.dataclass(frozen=True)
class ScoreRequest:
    """A score with the parameters that a user chose."""

    label: str  # the text that the user wrote; the column's name in the result
    score: Score  # the score
    parameters: Mapping[str, Any]  # parameter -> checked value, defaults filled in

    @property
    def reads(self) -> tuple[str, ...]:
        """Fields of `TokenStats` that `rows` reads with these parameters."""
        return self.score.statistics if self.score.reads is None else self.score.reads(self.parameters)

    def rows(self, stats: TokenStats) -> Array:
        """The part of the score that comes from the tokens: [B]."""
        own = {key: value for key, value in self.parameters.items() if key not in self.score.of_finish}
        return self.score.rows(stats, **own)

    def finish(self, rows: Array, evidence: Evidence) -> Array:
        """The score, from what `rows` returned: [B]."""
        return self.score.finish(rows, evidence, **{key: self.parameters[key] for key in self.score.of_finish})

    def with_corpus(self, log_frequency: Array) -> ScoreRequest:
        """The same score, with the log-frequencies [V] if it has a parameter for them."""
        if not self.score.corpus:
            return self
        return dataclasses.replace(self, parameters={**self.parameters, "log_frequency": log_frequency})


def parse_score(text: str) -> ScoreRequest:
    """Read "name" or "name:parameter=value,parameter=value".

    Raises:
      InputError: an unknown name or parameter, listing those that exist; a value out of range.
    """
    name, colon, options = text.strip().partition(":")
    if name not in SCORES:
        listing = "; ".join(f"{known}: {score.meaning}" for known, score in SCORES.items())
        raise InputError(f"there is no score {name!r}; existing scores are {listing}")
    given: dict[str, str] = {}
    for option in options.split(",") if colon else ():
        key, equals, value = (part.strip() for part in option.partition("="))
        if not (key and equals and value) or key in given:
            raise _bad_syntax(text)
        given[key] = value
    score = SCORES[name]
    score = score if score.derive is None else score.derive(given)
    for key in given:
        if key not in score.checks:
            known = f"it has {', '.join(score.checks)}" if score.checks else "it has none"
            raise InputError(f"score {name!r} has no parameter {key!r}; {known}")
    parameters = {key: check(given.get(key, score.defaults[key])) for key, check in score.checks.items()}
    return ScoreRequest(text, score, parameters)


def score_rows(stats: TokenStats, name: str, evidence: Evidence = Evidence()) -> Array:  # noqa: B008
    """One score of every row of a batch, LOWER = MORE member-like. Pure; jit-able with `name` static.

    Args:
      stats: Statistics [B, T], NumPy or JAX.
      name: A score, with options as in `parse_score`.
      evidence: Evidence that some scores need beside the text's own statistics.

    Returns:
      [B] in the float type of the statistics; NaN for a row without scored tokens.
    """
    request = parse_score(name).with_corpus(evidence.log_frequency)
    return request.finish(request.rows(stats), evidence)


def check_score_names(scores: Any) -> tuple[str, ...]:
    """Return the names: at least one, none twice."""
    if not isinstance(scores, Iterable):
        raise InputError(
            f"scores={scores!r} is neither a name nor a sequence of names; give for example scores=('loss',)"
        )
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError("scores is empty; name at least one score, for example scores=('loss',)")
    for name in names:
        if not isinstance(name, str):
            raise _bad_syntax(name)
        if names.count(name) > 1:
            raise InputError(f"scores names {name!r} more than once; remove the repetition")
    return names


def check_given(requests: Iterable[ScoreRequest], given: Mapping[str, Any]) -> None:
    """Check that `given` has each argument of `BESIDE` if, and only if, a score needs it; None counts as not given."""
    scores = [request.score for request in requests]
    for argument, what in BESIDE.items():
        asking = [score.name for score in scores if argument in score.beside]
        if asking and given.get(argument) is None:
            raise InputError(f"the score {asking[0]!r} needs {what}, or leave the score out")
        if given.get(argument) is not None and not asking:
            user = next(name for name, score in SCORES.items() if argument in score.beside)
            raise InputError(f"{argument} is given but no score uses it; add {user!r} to scores or leave it out")
    count = len(several) if isinstance(several := given.get("reference"), list) else 1
    for score in scores:
        if "reference" in score.passes and 0 < count < score.least_references:
            raise InputError(
                f"the score {score.name!r} needs at least {score.least_references} reference models, got {count}; pass "
                "reference=[...], a list of models that were not trained on the texts"
            )


def namespace(stats: TokenStats) -> Any:
    """numpy or jax.numpy, by the type of the statistics."""
    return stats.log_prob.__array_namespace__()


def padded_stats(
    fields: Sequence[str],
    columns: Sequence[np.ndarray],
    width: int,
    tokens: Sequence[np.ndarray] | None = None,
) -> TokenStats:
    """Statistics [fields, tokens] of some texts as rows of one width, in float64; fields that are not given are 0.

    `tokens` has the ids of their scored tokens.
    """
    padded = np.zeros((len(fields), len(columns), width))
    for i, column in enumerate(columns):
        padded[:, i, : column.shape[1]] = column
    mask = np.arange(width) < np.array([column.shape[1] for column in columns])[:, None]
    absent = dict.fromkeys(TokenStats.__dataclass_fields__, np.zeros(mask.shape))
    ids = None if tokens is None else np.stack([np.pad(row, (0, width - len(row))) for row in tokens])
    found = dict(zip(fields, padded, strict=True))
    return TokenStats(**{**absent, **found, "mask": mask, "tokens": ids})  # type: ignore[arg-type]


def masked_mean(xp: Any, values: Array, mask: Array) -> Array:
    """Mean over the scored tokens of each row: [B, T] -> [B]; NaN for a row without any."""
    return _ratio(xp, xp.where(mask, values, 0).sum(-1), mask.sum(-1))


def smallest_mean(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """Mean of the max(1, floor(fraction * n)) smallest of the n scored values of each row: [B, T] -> [B].

    The floor is exact: `fraction` is rational, so 0.29 of 100 tokens is 29. A NaN among the values gives NaN.
    """
    num_scored, count, ordered = _ordered(xp, values, mask, fraction)
    taken = xp.arange(values.shape[-1]) < xp.minimum(count, num_scored)[..., None]
    mean = _ratio(xp, xp.where(taken, ordered, 0).sum(-1), xp.where(num_scored > 0, count, 0))
    return xp.where((xp.isnan(values) & mask).any(-1), xp.nan, mean)


def smallest_tokens(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """The tokens that `smallest_mean` takes, and all that equal the largest of them: [B, T] bool."""
    _, count, ordered = _ordered(xp, values, mask, fraction)
    return mask & (values <= xp.take_along_axis(ordered, count[..., None] - 1, axis=-1))


def _ordered(xp: Any, values: Array, mask: Array, fraction: Fraction) -> tuple[Array, Array, Array]:
    """Scored tokens, how many of them max(1, floor(fraction * n)) are, and the values in ascending order."""
    num_scored = mask.sum(-1)
    count = xp.maximum(1, num_scored * fraction.numerator // fraction.denominator)
    return num_scored, count, xp.sort(xp.where(mask, values, xp.inf), axis=-1)


def first_occurrences(xp: Any, stats: TokenStats) -> Array:
    """The scored tokens that no earlier scored token of the row equals: [B, T] bool."""
    if stats.tokens is None:
        raise InputError("this score reads the tokens' ids: set TokenStats.tokens, [B, T] int32")
    order = xp.argsort(xp.where(stats.mask, stats.tokens, -1), axis=-1, stable=True)
    ordered = xp.take_along_axis(stats.tokens, order, axis=-1)
    scored = xp.take_along_axis(stats.mask, order, axis=-1)
    again = (ordered[..., 1:] == ordered[..., :-1]) & scored[..., :-1]
    new = xp.concatenate([xp.ones_like(scored[..., :1]), ~again], axis=-1)
    return stats.mask & xp.take_along_axis(new, xp.argsort(order, axis=-1), axis=-1)


def largest_mean(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """Mean of the max(1, floor(fraction * n)) largest of the n scored values of each row: [B, T] -> [B]."""
    return -smallest_mean(xp, -values, mask, fraction)


def check_fraction(parameter: str, value: Any, *, allow_zero: bool) -> Fraction:
    """A fraction of the tokens, kept as the exact decimal that was written."""
    try:
        fraction = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        fraction = None
    if fraction is None or not (0 <= fraction <= 1) or (fraction == 0 and not allow_zero):
        interval = "[0, 1]" if allow_zero else "(0, 1]"
        raise InputError(f"{parameter}={value!s} is not a fraction of the tokens; give a number in {interval}")
    if fraction.denominator > 10_000:
        raise InputError(f"{parameter}={value!s} has too many digits; give at most four decimals")
    return fraction


def as_float(value: Any) -> float:
    """The number that a word means, NaN where it means none."""
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return math.nan


def check_positive(parameter: str, value: Any) -> float:
    """A finite number above 0."""
    if not 0 < (number := as_float(value)) < math.inf:
        raise InputError(f"{parameter}={value!s} must be a finite number above 0")
    return number


def check_named(parameter: str, hint: str, named: Mapping[str, Any] | Sequence[str], value: Any) -> Any:
    """One of some words, or what it stands for in a mapping; `hint` says which there are."""
    if value not in named:
        raise InputError(f"{parameter}={value!r} is unknown; {hint}")
    return named[value] if isinstance(named, Mapping) else value


def _bad_syntax(text: Any) -> InputError:
    return InputError(
        f"cannot read the score {text!r}; write a name such as 'min_k', or 'min_k:k=0.1', or 'max_renyi:gamma=2,k=0.1'"
    )


def _ratio(xp: Any, total: Array, count: Array) -> Array:
    return xp.where(count > 0, total, xp.nan) / xp.maximum(count, 1)
