"""p-values for readers."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["is_known", "p_words"]


def p_words(p_value: Any, log_p_value: Any = None) -> str:
    """A p-value as a reader takes it in: .031 as it is, tiny ones as a power of ten.

    >>> p_words(0.0312), p_words(0.0, -46.05)
    ('0.031', '1.0e-20')
    """
    if not is_known(p_value):
        return "unknown"
    log = log_p_value if is_known(log_p_value) else math.log(p_value) if p_value > 0 else -math.inf
    if log == -math.inf:
        return "0"
    if log > math.log(1e-3):
        return f"{p_value:.2g}"
    exponent = math.floor(log / math.log(10))
    digits = f"{math.exp(log - exponent * math.log(10)):.1f}"
    return f"{digits}e{exponent}" if digits != "10.0" else f"1.0e{exponent + 1}"


def is_known(value: Any) -> bool:
    """A number, neither None nor NaN."""
    return value is not None and not math.isnan(value)
