"""Checks of what a model's configuration says about its layers and positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_agrees"]


def check_agrees(config: Mapping[str, Any], key: str, value: Any, other: str) -> None:
    """A key that may be there says the same as another one."""
    if config.get(key) is not None and config[key] != value:
        raise InputError(f"the configuration has {key}={config[key]!r}, but {other}={value!r}; remove the wrong one")
