"""Every kernel, with inputs, its slow reference and the roles of its arguments.

An entry's `call` takes the arrays by name and returns a pytree; `reference` returns the same pytree in NumPy. Leaves
whose first axis has the number of test items are per item, all others are summaries. `items` and `calibration`
name the arguments along the two item axes; `masks` names the mask that goes with each of them. One module an area;
`ELSEWHERE` says of a kernel without an entry where its laws are tested instead.
"""

import importlib

import jax.numpy as jnp
from contract_entry import NUM_CALIBRATION, NUM_TEST, Entry

__all__ = ["ELSEWHERE", "ENTRIES", "NUM_CALIBRATION", "NUM_TEST", "Entry", "to_device"]

AREAS = (
    "core",
    "combine",
    "knockoff",
    "envelope",
    "permutation",
    "shift",
    "bounds",
    "family",
    "study",
    "gradient",
    "sequential",
    "trajectories",
    "martingale",
)

_modules = [importlib.import_module(f"contracts_{area}") for area in AREAS]
ENTRIES = [entry for module in _modules for entry in module.ENTRIES]
ELSEWHERE = {name: where for module in _modules for name, where in module.ELSEWHERE.items()}


def to_device(arrays):
    return {name: jnp.asarray(value) for name, value in arrays.items()}
