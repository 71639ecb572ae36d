"""Stored tensors with the quantised weights among them as float32, one at a time.

The files decide which weights are quantised: one is if its numbers are not stored as floating point numbers or one of
its companions lies beside it, unless the configuration names it as not converted.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tdd.models.quantised.forms import Fault, Form, Layout, Module
from tdd.models.quantised.schemes import NOTE, Group, Scheme
from tdd.models.weights import DTYPES, Part, StoredTensors, View
from tdd.validate import InputError


class Dequantised(View):
    """Stored tensors, the quantised weights among them as float32."""

    def __init__(self, stored: StoredTensors, scheme: Scheme, where: str) -> None:
        super().__init__(stored)
        self._names, self._where = stored.names(), where
        self._weights: dict[str, tuple[Group, Module, Layout]] = {}
        for form in dict.fromkeys(group.form for group in scheme.groups):
            for name in sorted(name for name in self._names if name.endswith(form.carrier)):
                module = Module(stored, self._names, name.removesuffix(form.carrier))
                group = scheme.of(module.name)
                if group is None or group.form is not form or not _is_quantised(module, form):
                    continue
                with _named(where, module.name):
                    layout = form.layout(group.options, module)
                self._weights[module.name + form.weight] = (group, module, layout)
        held = {module.name + suffix for _, module, layout in self._weights.values() for suffix in layout.parts}
        self._seen = (self._names - held) | self._weights.keys()

    def names(self) -> frozenset[str]:
        """Names of all tensors; a weight instead of the tensors that it consists of."""
        return self._seen

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._weights[name][2].shape if name in self._weights else super().shape(name)

    def dtype(self, name: str) -> str:
        """Dtype of one tensor, as `StoredTensors.dtype`."""
        return "F32" if name in self._weights else super().dtype(name)

    def parts(self) -> dict[str, Part]:
        """The tensors that the quantised weights consist of."""
        return {
            module.name + suffix: part
            for _, module, layout in self._weights.values()
            for suffix, part in layout.parts.items()
        }

    def is_idle(self, name: str) -> bool:
        """Whether it is a bias of zeros beside a quantised weight."""
        if not name.endswith(".bias") or name.removesuffix("bias") + "weight" not in self._weights:
            return False
        return not np.any(super().read(name))

    def read(self, name: str) -> np.ndarray:
        """One tensor; a quantised weight as float32."""
        if name not in self._weights:
            return super().read(name)
        group, module, layout = self._weights[name]
        with _named(self._where, module.name):
            return group.form.decode(group.options, module, layout.shape)

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor; a quantised weight is dequantised whole for it."""
        return self.read(name)[index] if name in self._weights else super().cut(name, index)

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal, as `StoredTensors.equal`."""
        if not {name, other} & self._weights.keys():
            return super().equal(name, other)
        return np.array_equal(self.read(name), self.read(other))

    def sizes(self) -> dict[str, int]:
        """How many weights are quantised, and bytes of all tensors as they are stored and in float32."""
        widths = {**dict.fromkeys(("F16", "BF16", "I16", "U16"), 2), **dict.fromkeys(("F64", "I64", "U64"), 8)}
        widths |= dict.fromkeys(("F32", "I32", "U32"), 4)
        inner = self._stored
        stored = sum(math.prod(inner.shape(name)) * widths.get(inner.dtype(name), 1) for name in self._names)
        numbers = sum(math.prod(self.shape(name)) for name in self._seen)
        return {"weights": len(self._weights), "stored_bytes": stored, "float32_bytes": 4 * numbers}


def _is_quantised(module: Module, form: Form) -> bool:
    return module.dtype(form.carrier) not in DTYPES or any(map(module.has, form.companions))


@contextlib.contextmanager
def _named(where: str, name: str) -> Iterator[None]:
    """Faults of a module's tensors name it."""
    try:
        yield
    except Fault as fault:
        raise InputError(f"{where}: {name} {fault}; the file is damaged, or its config.json is another's") from fault


def record(folder: pathlib.Path, scheme: Scheme) -> dict[str, Any]:
    """What a record says of a checkpoint of this scheme."""
    with StoredTensors(folder) as stored:
        sizes = Dequantised(stored, scheme, str(folder)).sizes()
    return {"method": scheme.method, "form": scheme.says, **sizes, "note": NOTE}
