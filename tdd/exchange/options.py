"""The options of `tdd.run_exchange`: checked once, and recorded in run.json."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from tdd.procedures.exchangeability import TESTS
from tdd.scoring.buckets import check_budget, default_budget
from tdd.scoring.devices import Devices
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count

_STOPS = ("none", "e_process", "spending", "besag_clifford")


@dataclasses.dataclass(kw_only=True)
class Options:
    """Keyword arguments of `tdd.run_exchange`.

    Attributes:
      num_shards: See `tdd.run_exchange`, as for `num_shuffles`, `test`, `alpha`, `stop` and `target_p`.
      template: How a row becomes an example: "Q: {question} A: {answer}", or "json" for the row as a line of JSON.
      revision: Branch, tag or commit of the model, where that is a hub id.
      text_field: Field with the text, without a template.
      format: Format of the files, if their ending does not tell.
      separator: Text between two examples; take what the training data is likely to have had. A special token that is
        written in it is tokenised as text, with a warning.
      suffix: Fraction of each shard, at its end, that is permuted. What stands before is the same in all orders and is
        computed once; permuting less costs power. The orders remain a group, so the tests remain valid.
      allow_sorted: Test data sets whose order is sorted, which by itself voids the guarantee.
      bos: When a window begins with the token for the beginning of a sequence: "auto" as the tokenizer does it,
        "always", "never".
      max_length: Longest window in tokens; by default the model's own limit.
      stride: Tokens that each further window of a shard longer than the context adds. By default all but one, so that
        each token is computed once; less gives each token more context and costs more.
      params: Parameters, if `model` is a LanguageModel.
      tokenizer: Tokenizer, if `model` is a LanguageModel.
      dtype: Type of the parameters; None keeps them as stored.
      token_budget: Tokens a batch and device; 2,048 on CPU and 16,384 elsewhere by default, which `on` fills in.
      device: As in `tdd.score`, as are `devices` and `shard_params`.
      store: Folder of the score store, as in `tdd.score`; by default the folder `scoring` in `out`. A run with the same
        orders takes from there what another has computed, and only if it computed the very same batches: the bits of a
        run do not depend on what is stored.
      progress: Show a bar if standard error is a terminal.
      command: Command line for run.json.
    """

    num_shards: int = 50
    num_shuffles: int = 50
    test: str = "combined"
    alpha: float = 0.05
    stop: str = "none"
    target_p: float | None = None
    template: str | None = None
    revision: str | None = None
    text_field: str | None = None
    format: str | None = None
    separator: str = "\n\n"
    suffix: float = 1.0
    allow_sorted: bool = False
    bos: str = "auto"
    max_length: int | None = None
    stride: int | None = None
    params: Any = None
    tokenizer: Any = None
    dtype: Any = None
    token_budget: int | None = None
    device: Any = None
    devices: Any = None
    shard_params: bool = False
    store: str | os.PathLike[str] | None = None
    progress: bool = True
    command: str | None = None

    def __post_init__(self) -> None:
        self.num_shards = as_count(self.num_shards, "num_shards")
        self.num_shuffles = as_count(self.num_shuffles, "num_shuffles")
        arrays.check_choice(self.test, TESTS, "test")
        arrays.check_level(self.alpha)
        arrays.check_choice(self.stop, _STOPS, "stop")
        check_target(self.target_p, self.stop)
        if not isinstance(self.separator, str):
            raise InputError(f"separator must be a string, got {self.separator!r}")
        arrays.check_choice(self.bos, ("auto", "always", "never"), "bos")
        number = isinstance(self.suffix, (int, float, np.integer, np.floating)) and not isinstance(self.suffix, bool)
        if not number or not 0 < self.suffix <= 1:
            raise InputError(
                f"suffix={self.suffix!r} must be a fraction of each shard's examples, above 0 and at most 1"
            )
        self.suffix = float(self.suffix)

    def on(self, devices: Devices) -> Options:
        """These options with the budget of a batch on these devices."""
        budget = default_budget(devices.platform) if self.token_budget is None else check_budget(self.token_budget)
        return dataclasses.replace(self, token_budget=budget)

    def record(self, devices: Devices) -> dict[str, Any]:
        """The options that the numbers depend on, for run.json and the identity of the run."""
        names = (
            "separator", "bos", "max_length", "stride", "num_shards", "num_shuffles", "test", "alpha", "template",
            "suffix", "stop", "target_p", "token_budget",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in names},
            "dtype": None if self.dtype is None else str(self.dtype),
            "platform": devices.platform,
            "device_kind": devices.devices[0].device_kind,
        }


def check_target(value: Any, stop: str | None = None) -> None:
    """A level at which a sequential run stops; with `stop`, by a rule that stops for evidence."""
    if value is not None and not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1):
        raise InputError(f"target_p={value!r} must be a number between 0 and 1")
    if value is not None and stop in ("none", "besag_clifford"):
        raise InputError(
            f'target_p={value!r} asks to stop for evidence, which stop="{stop}" never does; use stop="spending" or '
            'stop="e_process", or leave target_p out'
        )
