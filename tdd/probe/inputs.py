"""What enters a probe: checked options; texts of every role → rows of tokens → micro-batches in which they mix."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from tdd.kernels.set_statistics import STATISTICS, Statistic
from tdd.procedures.ptdi import ProportionName
from tdd.scoring.buckets import plan
from tdd.scoring.how import RunOptions
from tdd.scoring.scores.score import parse_score
from tdd.scoring.tokenise import token_ids
from tdd.texts import load_texts
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count

ROLES: tuple[str, ...] = ("suspect", "reference", "canaries", "canary_reference")
"""The order in which their rows follow one another."""

_MAX_BUCKETS = 4
"""Most shapes: each is one more copy of the model in the compiled program."""

_NAMED = 3
"""Most pairs of equal texts that a message names."""


@dataclasses.dataclass(frozen=True)
class Role:
    """The texts of one role as tokens."""

    ids: tuple[str, ...]
    tokens: tuple[np.ndarray, ...]  # int32
    source: str
    sha256: str  # of ids and tokens
    num_cut: int  # texts whose end was cut off

    def __len__(self) -> int:
        return len(self.ids)


class Bucket(NamedTuple):
    """Micro-batches of one shape."""

    tokens: np.ndarray  # [G, B, T] int32, padded on the right with 0
    lengths: np.ndarray  # [G, B] int32 tokens of each row; 0 for padding rows


class Layout(NamedTuple):
    """All rows in micro-batches."""

    buckets: tuple[Bucket, ...]  # from long to short
    place: np.ndarray  # [N] int32, where the number of row i stands among the numbers of all buckets, one after another


def read_roles(
    sources: Mapping[str, Any], tokenizer: Any, *, limit: int | None, truncate: bool, vocab_size: int
) -> dict[str, Role]:
    """The texts of every role that is present, in the order of `ROLES`.

    Texts longer than the limit are cut to it, or are an error. A `vocab_size` of 0 is not known yet.
    """
    if (sources["canaries"] is None) != (sources["canary_reference"] is None):
        given, missing = ("canaries", "canary_reference")[:: 1 if sources["canary_reference"] is None else -1]
        raise InputError(
            f"{given} is given without {missing}: the rank of a canary is its place among sequences of the same "
            "kind that are never trained on; pass both or neither"
        )
    roles = {
        name: _read_role(name, sources[name], tokenizer, limit, truncate, vocab_size)
        for name in ROLES
        if sources[name] is not None or name in ("suspect", "reference")
    }
    _check_distinct(roles)
    return roles


def read_tokens(
    name: str, source: Any, tokenizer: Any, *, add_special_tokens: bool
) -> tuple[tuple[str, ...], tuple[np.ndarray, ...], str]:
    """Identifiers and int32 token ids of each text, and where the texts came from; `name` is that of the argument."""
    if isinstance(source, (np.ndarray, jax.Array)) and source.dtype.kind in "iuf":
        source = list(np.asarray(source))
    if isinstance(source, (list, tuple)) and not (source and isinstance(source[0], (str, Mapping))):
        tokens = rows_of_ids(name, source)
        if not tokens:
            raise InputError(f"{name} is empty; it needs at least one text")
        return tuple(str(number) for number in range(1, len(tokens) + 1)), tokens, "memory"
    texts = load_texts(source)
    if tokenizer is None:
        raise InputError(
            f"{name} holds strings but no tokenizer is given; pass tokenizer=, or rows of token ids instead of strings"
        )
    tokens = tuple(token_ids(tokenizer, texts.texts, add_special_tokens=add_special_tokens))
    return texts.ids, tokens, texts.source


def rows_of_ids(name: str, rows: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Rows of token ids as int32 arrays."""
    arrays = []
    for index, row in enumerate(rows):
        try:
            ids = np.asarray(row)
        except ValueError:  # a ragged row
            ids = np.zeros((0, 0))
        if ids.ndim != 1 or not (ids.size == 0 or np.issubdtype(ids.dtype, np.integer)):
            shown = repr(row)
            raise InputError(
                f"{name}[{index}] must be a row of token ids (whole numbers from 0), got "
                f"{shown if len(shown) <= 60 else shown[:57] + '...'}; give strings, Texts, or one sequence of token "
                "ids a text"
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < 2**31:
            worst = ids.min() if ids.min() < 0 else ids.max()
            raise InputError(
                f"{name}[{index}] holds the token id {worst}; token ids are rows of a vocabulary, from 0 to 2^31 - 1: "
                "give each row without its padding"
            )
        arrays.append(ids.astype(np.int32))
    return tuple(arrays)


def num_texts(roles: Mapping[str, Role]) -> tuple[int, int, int, int]:
    """m suspects, n references, c canaries and k canary references."""
    m, n, c, k = (len(roles[name]) if name in roles else 0 for name in ROLES)
    return m, n, c, k


def lay_out(rows: Sequence[np.ndarray], *, budget: int, limit: int | None, seed: int) -> Layout:
    """Micro-batches of rows of any roles, in an order that is independent of the roles.

    B T of a micro-batch does not exceed the budget, unless one row alone does.
    """
    order = np.random.default_rng(seed).permutation(len(rows))
    lengths = np.array([len(rows[i]) for i in order], np.int64)
    batches = plan({"probe": lengths}, token_budget=budget, max_buckets=_MAX_BUCKETS, limit=limit)
    place, buckets, before = np.zeros(len(rows), np.int32), [], 0
    for length in sorted({batch.length for batch in batches}, reverse=True):
        group = [batch for batch in batches if batch.length == length]
        size = group[0].size
        tokens, counts = np.zeros((len(group), size, length), np.int32), np.zeros((len(group), size), np.int32)
        for g, batch in enumerate(group):
            for b, row in enumerate(order[batch.rows]):
                tokens[g, b, : len(rows[row])], counts[g, b] = rows[row], len(rows[row])
                place[row] = before + g * size + b
        buckets.append(Bucket(tokens, counts))
        before += counts.size
    return Layout(tuple(buckets), place)


def _read_role(name: str, source: Any, tokenizer: Any, limit: int | None, truncate: bool, vocab_size: int) -> Role:
    """The texts of a role: of at least one scored token, within the limit, of token ids that the model has."""
    ids, tokens, origin = read_tokens(name, source, tokenizer, add_special_tokens=True)
    for identifier, row in zip(ids, tokens, strict=True):
        if len(row) < 2:
            raise InputError(
                f"{name}: text {identifier!r} has {len(row)} token{'' if len(row) == 1 else 's'}; scoring needs at "
                "least two, because the first has no context: remove the text or lengthen it"
            )
    long = [place for place, row in enumerate(tokens) if limit is not None and len(row) > limit]
    if long and not truncate:
        more = f" ({len(long) - 1} further texts of {name} are too long as well)" if len(long) > 1 else ""
        raise InputError(
            f"{name}: text {ids[long[0]]!r} has {len(tokens[long[0]])} tokens, more than the limit of {limit}{more}; "
            f"pass long_texts='truncate', which scores the first {limit} tokens of each text, or split the texts"
        )
    digest, kept = hashlib.sha256(), tuple(row[:limit] for row in tokens)
    for identifier, row in zip(ids, kept, strict=True):
        if vocab_size and not 0 <= row.min() <= row.max() < vocab_size:
            worst = row.max() if row.max() >= vocab_size else row.min()
            raise InputError(
                f"{name}: text {identifier!r} has token id {worst}, but the model has a vocabulary of {vocab_size}; "
                "pass the tokenizer, or the token ids, that the model is trained with"
            )
        for part in (identifier.encode(), row.astype("<i4").tobytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return Role(ids, kept, origin, digest.hexdigest(), len(long))


def _check_distinct(roles: Mapping[str, Role]) -> None:
    """No two texts have the same tokens.

    In two roles such a text would stand on both sides of a comparison. Twice in one role it moves the whole set as if
    two texts had moved, and the random labellings, which part the two, do not: the alarm would have no level.
    """
    seen: dict[bytes, tuple[str, str]] = {}
    across: list[str] = []
    within: list[str] = []
    for name, role in roles.items():
        for identifier, row in zip(role.ids, role.tokens, strict=True):
            other_name, other = seen.setdefault(row.tobytes(), (name, identifier))
            if other_name != name:
                across.append(f"{identifier!r} of {name} is {other!r} of {other_name}")
            elif other != identifier:
                within.append(f"{identifier!r} of {name} is {other!r} again")
    for pairs, problem, advice in (
        (across, "stand in two roles", "every text may have one role, so remove it from one of them"),
        (within, "stand in one role twice", "copies score alike, which would void the level: keep one of each"),
    ):
        if pairs:
            more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
            raise InputError(f"the same tokens {problem}: {'; '.join(pairs[:_NAMED])}{more}; {advice}")


COMPUTED_SCORES = ("loss", "min_k", "min_k_plus_plus", "max_renyi", "m_entropy")
"""Scores that come from the statistics of a text's own tokens."""

Baseline = Literal["first", "none"]

_MOST_ITEMS = 2**18
"""Suspects and references together stay below this, so that sums of their ranks are exact."""

_MOST_LABELS = 2**32
"""Bytes of the table of relabellings."""


class FurtherOptions(RunOptions, total=False):
    """The further options of `tdd.Probe`."""

    canaries: Any
    canary_reference: Any
    grad_norms: bool
    proportion: ProportionName
    baseline: Baseline
    statistic: Statistic
    num_draws: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Options that, with model and texts, decide the numbers of a probe; see `tdd.Probe`.

    `max_length` is the model's own limit unless a shorter one was given.
    """

    score: str
    alpha: float
    every: int
    num_steps: int | None
    grad_norms: bool = False
    proportion: ProportionName = "storey"
    baseline: Baseline = "first"
    statistic: Statistic = "combined"
    num_draws: int = 9_999
    max_length: int | None
    long_texts: str
    token_budget: int
    seed: int

    def __post_init__(self) -> None:
        if parse_score(self.score).name not in COMPUTED_SCORES:
            raise InputError(
                f"score={self.score!r} needs more than the model's statistics of the text's own tokens, which is all "
                f"that a probe computes; choose one of {', '.join(COMPUTED_SCORES)}, or use tdd.score on a saved "
                "checkpoint"
            )
        arrays.check_level(self.alpha)
        arrays.check_choice(self.proportion, ("none", "subtraction", "storey"), "proportion")
        arrays.check_choice(self.baseline, ("first", "none"), "baseline")
        arrays.check_choice(self.statistic, STATISTICS, "statistic")
        arrays.check_choice(self.long_texts, ("error", "truncate"), "long_texts")
        plain = {
            "alpha": float(self.alpha),
            "every": as_count(self.every, "every"),
            "num_steps": None if self.num_steps is None else as_count(self.num_steps, "num_steps"),
            "grad_norms": bool(self.grad_norms),
            "num_draws": as_count(self.num_draws, "num_draws"),
            "seed": arrays.check_seed(self.seed),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @property
    def num_looks(self) -> int | None:
        """Looks at the steps 0, every, 2 every, ... below num_steps; None where num_steps is."""
        return None if self.num_steps is None else (self.num_steps - 1) // self.every + 1


def check_reachable(
    num_suspects: int, num_references: int, num_draws: int, alpha: float, *, num_looks: int | None
) -> None:
    """An alarm and a flagged item are possible; with `num_looks` None the level is never spent whole."""
    level, num_items = Fraction(str(alpha)), num_suspects + num_references
    if num_items >= _MOST_ITEMS:
        raise InputError(
            f"{num_suspects} suspects and {num_references} references are too many to rank exactly; give fewer than "
            f"{_MOST_ITEMS} in all"
        )
    if (num_draws + 1) * num_items > _MOST_LABELS:
        raise InputError(
            f"num_draws={num_draws} relabellings of {num_items} texts take {(num_draws + 1) * num_items / 2**30:.1f} "
            f"GiB; at most {_MOST_LABELS // num_items - 1} fit in {_MOST_LABELS // 2**30} GiB"
        )
    fewest = math.floor(1 / level) if num_looks is None else math.ceil(1 / level) - 1
    if num_draws < fewest:
        raise InputError(
            f"num_draws={num_draws} relabellings cannot give a p-value of alpha={alpha:g} or less; use at least "
            f"{fewest}, and better {math.ceil(20 / level) - 1}, so that early looks can raise an alarm"
        )
    if (num_references + 1) * level < 1:
        raise InputError(
            f"reference has {num_references} texts, so that no item's p-value can be {alpha:g} or less; give at least "
            f"{math.ceil(1 / level) - 1} references, or a larger alpha"
        )
    if math.comb(num_items, num_suspects) * level < 1:
        raise InputError(
            f"{num_suspects} suspects and {num_references} references can be told apart in only "
            f"{math.comb(num_items, num_suspects)} ways, too few for a p-value of alpha={alpha:g}; give more texts, or "
            "a larger alpha"
        )
