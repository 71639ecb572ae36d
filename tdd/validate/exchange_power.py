"""Checks of a power plan for tests of canonical order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["as_shard_pool", "as_tests", "check_effect", "check_shifted", "check_tokens"]


def as_shard_pool(canonical: Any, shuffled: Any) -> tuple[np.ndarray, np.ndarray]:
    """[r0] and [r0, k0] log-probabilities, centred by shard, in single precision."""
    if shuffled is None:
        raise InputError("shuffled is missing: the log-probabilities of the shuffles of each shard, [shards, shuffles]")
    own, others = np.asarray(canonical, np.float64), np.asarray(shuffled, np.float64)
    if own.ndim != 1 or others.ndim != 2 or len(own) != len(others):
        raise InputError(
            f"canonical must be [shards] and shuffled [shards, shuffles], got shapes {own.shape} and {others.shape}"
        )
    if len(own) < 1 or others.shape[1] < 2:
        raise InputError(
            f"at least one shard with two shuffles is needed, got {len(own)} shards with {others.shape[1]} shuffles"
        )
    bad = int((~np.isfinite(own) | ~np.isfinite(others).all(axis=1)).sum())
    if bad:
        raise InputError(f"{bad} of {len(own)} shards have a missing or infinite log-probability; leave them out")
    middle = others.mean(axis=1)
    return (own - middle).astype(np.float32), (others - middle[:, None]).astype(np.float32)


def as_tests(given: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Names of tests, each once."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InputError(f"test is empty; choose among {', '.join(known)}")
    for name in names:
        if name not in known:
            raise InputError(f"test must be one of {', '.join(known)}; got {name!r}")
    return tuple(dict.fromkeys(names))


def check_effect(effect: Any) -> float:
    """A positive number of standard deviations."""
    number = math.nan if isinstance(effect, (bool, str)) else float(effect)
    if not 0 < number <= 1_000:
        raise InputError(
            f"effect must be positive (and at most 1000): by how many standard deviations of a shuffle the canonical "
            f"order is more likely; got {effect!r}"
        )
    return number


def check_shifted(share: Any) -> float:
    """A share in (0, 1]."""
    number = math.nan if isinstance(share, (bool, str)) else float(share)
    if not 0 < number <= 1:
        raise InputError(f"shifted_share must lie above 0 and at most at 1, got {share!r}; 0.1 stands for 10 %")
    return number


def check_tokens(tokens: Any) -> float | None:
    """Tokens of a shard."""
    if tokens is None:
        return None
    number = math.nan if isinstance(tokens, (bool, str)) else float(tokens)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"shard_tokens must be a positive number of tokens, got {tokens!r}")
    return number
