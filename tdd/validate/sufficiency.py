"""Which scores log-probabilities of a text's own tokens suffice for, and whether a second dump fits the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tdd.validate.errors import InputError

__all__ = [
    "check_has_tokens",
    "check_matched",
    "check_same_texts",
    "check_sufficient",
    "check_texts_for_bytes",
]

_NAMED = 5

_WHOLE_VOCABULARY = (
    "needs {} at every position, sums over the whole vocabulary; the tokens' own log-probabilities do not hold them, "
    "and top-k lists never suffice"
)


class _Score(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def statistics(self) -> tuple[str, ...]: ...
    @property
    def passes(self) -> tuple[Any, ...]: ...


def check_sufficient(
    scores: Mapping[str, _Score | None],
    *,
    format: str,
    only_sums: bool,
    num_without_text: int,
    given: Mapping[str, Any],
) -> None:
    """Every score can be computed; all that cannot are named with their reasons.

    Args:
      scores: label -> the score, None for loss_per_byte.
      format: layout of the dump.
      only_sums: the dump has one sum a text instead of one number a token.
      num_without_text: texts that are not there.
      given: further passes -> their dumps, None where not given.
    """
    reasons = {}
    for label, score in scores.items():
        reason = _missing(score, format, only_sums, num_without_text, given)
        if reason is not None:
            reasons[label] = reason
    if reasons:
        listing = "; ".join(f"{label!r} {reason}" for label, reason in reasons.items())
        possible = "loss_per_byte, reference" if only_sums else "loss, min_k, zlib, lowercase, reference, loss_per_byte"
        raise InputError(f"the log-probabilities do not suffice: {listing}. Possible from this file: {possible}")
    used = {name for score in scores.values() if score is not None for name in score.passes}
    for name, dump in given.items():
        if dump is not None and name not in used:
            raise InputError(f"{name} is given but no score uses it; add {name!r} to scores or leave it out")


def _missing(
    score: _Score | None, format: str, only_sums: bool, num_without_text: int, given: Mapping[str, Any]
) -> str | None:
    """Why a score cannot be computed, or None."""
    no_text = (
        f"needs the texts, and {num_without_text} rows have none: name their field with text_field, or give texts="
    )
    if score is None:
        return no_text if num_without_text else None
    beyond = [name for name in score.statistics if name != "log_prob"]
    if beyond:
        return _WHOLE_VOCABULARY.format(" and ".join(beyond))
    if score.statistics != ("log_prob",):
        return "needs the model itself, not only its log-probabilities; see tdd.score"
    for name in score.passes:
        if name not in given:
            return f"needs the model itself ({name}); see tdd.score"
        if given[name] is None:
            return f"needs a second dump: give {name}="
    if only_sums and score.name != "reference":
        return (
            f"needs the log-probability of every token; {format} files hold their sum and not their number, which "
            "suffices for 'loss_per_byte'"
        )
    if num_without_text and (score.name == "zlib" or only_sums):
        return no_text
    return None


def check_texts_for_bytes(num_without_text: int) -> None:
    """Bytes of every text, where tokens are no common unit."""
    if num_without_text:
        raise InputError(
            "the reference dump has other numbers of tokens, so both losses must be per byte of text, and "
            f"{num_without_text} rows have no text: name their field with text_field, or give texts="
        )


def check_matched(name: str, source: str, missing: Sequence[str]) -> None:
    """Every row has its partner."""
    if missing:
        shown = ", ".join(map(repr, missing[:_NAMED])) + (" ..." if len(missing) > _NAMED else "")
        raise InputError(
            f"{source}: {len(missing)} ids of the scored texts are not in {name}: {shown}; rows are matched by id"
        )


def check_has_tokens(name: str, source: str, has_tokens: bool) -> None:
    """A dump with one number a token."""
    if not has_tokens:
        raise InputError(f"{source}: {name} needs one log-probability a token, this file holds sums")


def check_same_texts(
    name: str, source: str, ids: Sequence[str], wanted: Sequence[str | None], found: Sequence[str | None]
) -> None:
    """Where both dumps have a text, it is the same one (lowercased for "lowercase")."""
    for identifier, expected, text in zip(ids, wanted, found, strict=True):
        if expected is not None and text is not None and expected != text:
            what = "the lowercased text" if name == "lowercase" else "the same text"
            raise InputError(f"{source}: the text of {identifier!r} in {name} is not {what}: {text[:60]!r}")
