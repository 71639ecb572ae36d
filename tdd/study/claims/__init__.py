"""Claims of what is valid and what is not, measured by `tdd study validity`."""

from __future__ import annotations

import importlib

from tdd.study.claims.claim import Claim

__all__ = ["Claim", "all_claims"]

_MODULES = ("estimates", "combination", "knockoffs", "joint", "order", "auditor", "probe")


def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the table."""
    modules = [importlib.import_module(f"tdd.study.claims.{name}") for name in _MODULES]
    claims = tuple(claim for module in modules for claim in module.CLAIMS)
    names = [claim.name for claim in claims]
    if len(set(names)) != len(names):
        raise ValueError(f"claims with equal names: {sorted(names)}")
    return claims
