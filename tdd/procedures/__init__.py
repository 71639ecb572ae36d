"""The procedures: each composes kernels, names its guarantee and checks its input. All scores are loss-like.

The names of `__init__.pyi` are every procedure as a value, and what few need; they are loaded on first use.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
