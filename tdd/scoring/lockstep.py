"""Processes that compute every batch side by side, because no host can hold all parameters of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tdd.validate.errors import InputError

__all__ = ["check_alike", "gathered", "out_of_memory"]


def check_alike(facts: Mapping[str, Any]) -> None:
    """Compare the facts of all processes. All call it together, before anything that takes all of them: processes with
    different models or batches would wait for one another for ever.

    Raises:
      InputError: in all of them, if one has other facts than process 0.
    """
    texts = [json.dumps([name, value], sort_keys=True, default=str) for name, value in facts.items()]
    digests = np.stack([np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts])
    everyone = gathered(digests)
    same = (everyone == everyone[0]).all(axis=-1)
    names = np.array([*facts])
    differing = [f"process {i}: {', '.join(names[~row])}" for i, row in enumerate(same) if not row.all()]
    if differing:
        raise InputError(
            f"process {jax.process_index()}: other processes were not given the same inputs as process 0: "
            f"{'; '.join(differing)}. All processes of a run take the same command and the same files, and share their "
            "output folder"
        )


def gathered(array: np.ndarray) -> np.ndarray:
    """[processes, ...]: the array of each process."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


def out_of_memory(rows: int, length: int) -> InputError:
    """Processes that compute in lockstep cannot each go on with smaller batches."""
    return InputError(
        f"out of memory in a batch of {rows} rows of {length} tokens; give all processes a smaller token_budget"
    )
