"""The record of the contract suite: one kernel under one set of static options, with its inputs and reference."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NUM_TEST, NUM_CALIBRATION = 23, 38


@dataclasses.dataclass(frozen=True)
class Entry:
    """One kernel under one set of static options."""

    kernel: str
    call: Callable[..., Any]
    make: Callable[[np.random.Generator, int, int], dict[str, np.ndarray]]
    reference: Callable[..., Any]
    items: tuple[str, ...] = ("scores",)
    calibration: tuple[str, ...] = ("calibration",)
    masks: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"scores": "mask", "calibration": "calibration_mask"}
    )
    label: str = ""
    random: bool = False
    min_calibration: int = 0
    float_inputs: tuple[str, ...] = ("scores", "calibration", "p_values", "weights", "members")
    tolerance: float = 4e-7
    always_single: bool = False  # float32 by definition, whatever comes in

    @property
    def id(self):
        return f"{self.kernel}{'/' + self.label if self.label else ''}"
