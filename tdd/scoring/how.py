"""How to run: the options that everything which scores texts has in common."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from tdd.scoring.buckets import check_budget, default_budget
from tdd.scoring.devices import Devices, find_devices
from tdd.validate import InputError
from tdd.validate.options import KnownFields


class RunOptions(TypedDict, total=False):
    """The fields of `Run` as keywords of a call."""

    device: Any
    devices: Any
    shard_params: bool
    dtype: Any
    token_budget: int | None
    max_length: int | None
    long_texts: str | None
    store: str | os.PathLike[str] | None
    job: str
    progress: bool
    on_batch: Callable[[int, int], None] | None


@dataclasses.dataclass(frozen=True)
class Run(KnownFields):
    """How to run: devices, precision, layout, store and progress of one or many calls.

    `tdd.score(..., run=tdd.Run(devices="all", dtype="bfloat16"))` and `tdd.score(..., devices="all", dtype="bfloat16")`
    are the same; keywords of a call take the place of the fields of `run`.

    Attributes:
      device: "cpu", "gpu", "tpu", with an index as in "gpu:1", or a `jax.Device`; by default JAX's first.
      devices: several devices, each with its own batches: "all" of this process, how many, or a sequence of
        `jax.Device`. The numbers do not depend on it: each device does what a single one would do.
      shard_params: divide the parameters over the devices, which gather them layer by layer when they need them: for
        models that do not fit on one device. A checkpoint is loaded straight into the shards.
      dtype: dtype of the parameters ("float32", "bfloat16"); None keeps them as stored.
      token_budget: tokens per batch and device, 2,048 on CPU and 16,384 elsewhere by default; half of it for gradient
        norms. Halved during the run if the memory is exceeded.
      max_length: longest window in tokens; by default the model's own limit.
      long_texts: "window" (the default of `tdd.score`): every token scored exactly once, in windows whose last is
        extended to the left; "truncate": tokens beyond the limit are dropped, and the text with them; "error": no text
        may be longer. For the score "grad_norm", "window" means "error".
      store: folder in which the statistics of every row of tokens are kept, `tdd.scoring.store.ScoreStore`. The
        same call after an interruption continues there and ends with the same numbers to the bit; another call takes
        from there what has been computed with the same model and versions, up to 1e-5 relative where the batch had
        another shape. Several processes may use one store at once. Who can write the folder must be trusted: its
        hashes tell damage, not forged scores.
      job: any name, the same in all shards and the call that joins them, if several runs with shards use one store.
      progress: show a progress bar if standard error is a terminal.
      on_batch: called with (batches done, batches in all) after each batch; in a shard those of the shard. Of texts
        that are not tokenised yet (more than 4 million characters are tokenised while others are computed) the
        batches are estimated.

    Raises:
      InputError: a keyword that is no field; long_texts is none of the three; a store that is no path, a job that is
        no text; an on_batch that cannot be called.
    """

    device: Any = None
    devices: Any = None
    shard_params: bool = False
    dtype: Any = None
    token_budget: int | None = None
    max_length: int | None = None
    long_texts: str | None = None
    store: str | os.PathLike[str] | None = None
    job: str = ""
    progress: bool = True
    on_batch: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.long_texts not in (None, "window", "truncate", "error"):
            raise InputError(
                f"long_texts={self.long_texts!r} is unknown; use 'window' (score every token once), 'truncate' or "
                "'error'"
            )
        if self.store is not None and not isinstance(self.store, (str, os.PathLike)):
            raise InputError(f"store={self.store!r} must be the path of a folder")
        if not isinstance(self.job, str):
            raise InputError(
                f"job={self.job!r} must be a text; leave it out unless several runs with shards use one store"
            )
        if self.on_batch is not None and not callable(self.on_batch):
            raise InputError(f"on_batch={self.on_batch!r} must be a function of (batches done, batches in all)")

    def find_devices(self) -> Devices:
        """Find the devices; see `tdd.scoring.devices.find_devices`."""
        return find_devices(self.device, self.devices, shard_params=self.shard_params)

    def budget(self, platform: str) -> int:
        """Return the tokens per batch and device."""
        return default_budget(platform) if self.token_budget is None else check_budget(self.token_budget)

    def check_unused(self, names: Sequence[str], where: str) -> None:
        """Refuse fields that `where` has no use for.

        Raises:
          InputError: one of them is not at its default; all of these are named.
        """
        usual = Run()
        if given := [f"{name}={value!r}" for name in names if (value := getattr(self, name)) != getattr(usual, name)]:
            raise InputError(
                f"{', '.join(given)}: of no use to {where}; leave {'it' if len(given) == 1 else 'them'} out"
            )


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a call that are fields of `Run`, and the others.

    >>> split_options({"alpha": 0.1, "dtype": "bfloat16"})
    ({'dtype': 'bfloat16'}, {'alpha': 0.1})
    """
    known = RunOptions.__annotations__.keys()
    return (
        {name: value for name, value in options.items() if name in known},
        {name: value for name, value in options.items() if name not in known},
    )


def as_run(run: Run | None, options: Mapping[str, Any]) -> Run:
    """Return `run` with the options of a call, which take the place of its fields.

    Raises:
      InputError: an option that there is not; for what scores have as fields, how to write it.
    """
    known = RunOptions.__annotations__.keys()
    if unknown := [name for name in options if name not in known]:
        from tdd.scoring.scores.score import check_no_fields

        check_no_fields(unknown)
        raise InputError(f"there is no option {unknown[0]!r}; those of how to run are {', '.join(known)} (tdd.Run)")
    if run is not None and not isinstance(run, Run):
        raise InputError(f"run={run!r} is no tdd.Run; write run=tdd.Run(device='cpu')")
    return dataclasses.replace(run or Run(), **options)
