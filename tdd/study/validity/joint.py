"""Claims of this area."""

from __future__ import annotations

from tdd.study.validity.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = ()
