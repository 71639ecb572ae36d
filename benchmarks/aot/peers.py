"""torch beside the main programs, on the device that JAX computes on.

Weights are random and made on that device; transformers' models run in the program's type with torch's own attention
(`sdpa`). Every way of torch first agrees with ours, both in float32 at its highest precision, on a small model with the
same weights or on small lists. Of a float32 model torch is timed with products of float32, as ours are, and with TF32.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import gc
import math
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.aot import models
from benchmarks.throughput import harness
from benchmarks.throughput.peers.gradients import TorchBackward, TorchFunc, TorchStreamed
from benchmarks.throughput.peers.ranking import conformal_torch
from benchmarks.throughput.peers.stepup import bh_torch
from benchmarks.throughput.peers.tokens import TorchStatistics
from benchmarks.throughput.peers.torch_models import compile_blocks, random_torch_model, torch_model
from tdd.kernels import conformal, stepup

__all__ = [
    "ALPHA",
    "BH",
    "CONFORMAL",
    "GradientNorms",
    "Kernel",
    "Peer",
    "TokenStatistics",
    "beside",
    "bh",
    "interleaved",
    "p_values",
    "share_memory",
    "torch_device",
]

ALPHA = 0.1
_Ways = dict[str, Callable[[], Any]]
_About = dict[str, dict[str, Any]]

_COMPILED = ("cuda",)
"""Devices for which torch compiles too: on a CPU that takes a minute."""

_TORCH_BYTES = 36 * 2**30
"""Of a GPU's memory, for torch: the 7B shape has 13.5 GB of weights in bfloat16, and its blocks keep 12 GB of a text of
2,048 tokens for the backward pass, counted from shapes."""

_LATE = "the limit had passed"
_FRACTIONS = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")


class Peer(Protocol):
    """torch's forms of a program."""

    @property
    def tolerance(self) -> float:
        """Largest difference between results, relative to ours where that is beyond 1."""
        ...

    def small(self, folder: pathlib.Path) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Our function and arguments that take no time; weights are left in the folder as a checkpoint."""
        ...

    def ways(self, device: str, arguments: tuple[Any, ...], folder: pathlib.Path | None = None) -> _Ways:
        """Calls by name on torch's device; with the checkpoint of a folder in float32, or random weights."""
        ...


@dataclasses.dataclass(frozen=True)
class _OfModel(abc.ABC):
    """A program of a model of `models.CONFIGS` whose weights have this type."""

    name: str
    dtype: str = dataclasses.field(compare=False)  # agreement is found once for all types

    def small(self, folder: pathlib.Path) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from benchmarks.throughput.random_model import save_model
        from tdd.models import checkpoint

        lm, params, _ = checkpoint.load(save_model(folder / "model", 0, models.spec(self.name, models.SMALL)))
        tokens = np.random.default_rng(1).integers(0, lm.vocab_size, (3, 40)).astype(np.int32)
        return self._ours(lm), (params, jnp.asarray(tokens), jnp.ones(tokens.shape, bool))

    def ways(self, device: str, arguments: tuple[Any, ...], folder: pathlib.Path | None = None) -> _Ways:
        import torch

        if folder is None:
            model = random_torch_model(self.name, models.CONFIGS[self.name], self.dtype, device)
        else:
            model = torch_model(folder / "model").to(device)
        if device in _COMPILED:
            compile_blocks(model)
        _, tokens, _ = arguments
        ways = self._ways(model, torch.tensor(np.asarray(tokens, np.int64), device=device))
        if self.dtype != "float32" or device not in _COMPILED:
            return ways
        rounded = {f"{way}, TF32": call for way, call in ways.items()}
        return {**{way: _exactly(call) for way, call in ways.items()}, **rounded}

    @abc.abstractmethod
    def _ours(self, lm: Any) -> Callable[..., Any]: ...

    @abc.abstractmethod
    def _ways(self, model: Any, ids: Any) -> _Ways: ...


@dataclasses.dataclass(frozen=True)
class TokenStatistics(_OfModel):
    """Statistics of every token."""

    tolerance: float = 1e-4

    def _ours(self, lm: Any) -> Callable[..., Any]:
        return models.token_statistics(lm)

    def _ways(self, model: Any, ids: Any) -> _Ways:
        compiled = ids.device.type in _COMPILED
        return _both(ids.device.type, functools.partial(TorchStatistics(model, compiled=compiled), ids))


@dataclasses.dataclass(frozen=True)
class GradientNorms(_OfModel):
    """Norms of the gradients of every text; those of a large model are not kept, nor formed side by side."""

    tolerance: float = 1e-5

    def _ours(self, lm: Any) -> Callable[..., Any]:
        norms = models.gradient_norms(lm)
        return lambda *arguments: norms(*arguments).total

    def _ways(self, model: Any, ids: Any) -> _Ways:
        kept = self.name == "gpt2"
        ways = _both(ids.device.type, functools.partial((TorchBackward if kept else TorchStreamed)(model).norms, ids))
        if kept:
            ways["torch.func"] = _eager(ids.device.type, functools.partial(TorchFunc(model).norms, ids))
        return ways


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel on every row of its arguments, of which there are `lists` arrays."""

    ours: Callable[..., Any]
    torch: Callable[..., Any]
    lists: int
    tolerance: float = 1e-6

    def small(self, folder: pathlib.Path) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        values = np.random.default_rng(0).random((self.lists, 50, 40)) ** 3
        return jax.vmap(self.ours), tuple(jnp.asarray(values, jnp.float32))

    def ways(self, device: str, arguments: tuple[Any, ...], folder: pathlib.Path | None = None) -> _Ways:
        import torch

        function = torch.compile(self.torch, dynamic=False) if device in _COMPILED else self.torch
        return _both(
            device, functools.partial(function, *(torch.tensor(np.asarray(x), device=device) for x in arguments))
        )


def bh(p: jax.Array) -> jax.Array:
    """BH of one list."""
    return stepup.bh(p, ALPHA).reject


def p_values(calibration: jax.Array, scores: jax.Array) -> jax.Array:
    """Conformal p-values of one list."""
    return conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))


BH = Kernel(bh, functools.partial(bh_torch, alpha=ALPHA), 1)
CONFORMAL = Kernel(p_values, conformal_torch, 2)


def torch_device(platform: str) -> tuple[str, str]:
    """Torch's device on one of JAX's platforms and the versions, or "" and why there is none."""
    try:
        import torch
        import transformers
    except (ImportError, OSError) as error:  # a library of CUDA may be missing
        return "", f"torch and transformers cannot be imported: {error}"
    if platform == "gpu" and not torch.cuda.is_available():
        return "", f"torch {torch.__version__} sees no CUDA device"
    if platform not in ("cpu", "gpu"):
        return "", f"torch {torch.__version__} does not run on {platform}"
    return "cuda" if platform == "gpu" else "cpu", f"torch {torch.__version__}, transformers {transformers.__version__}"


def share_memory() -> None:
    """Leave torch its part of a GPU, of which JAX would take three quarters. Call before JAX starts."""
    if any(name in os.environ for name in _FRACTIONS) or not torch_device("gpu")[0]:
        return
    import torch

    rest = 1 - _TORCH_BYTES / torch.cuda.get_device_properties(0).total_memory
    os.environ[_FRACTIONS[0]] = f"{min(0.75, max(0.5, rest)):.2f}"


@contextlib.contextmanager
def beside(
    peer: Peer | None, device: Any, where: str, arguments: tuple[Any, ...], last: float = math.inf
) -> Iterator[tuple[_Ways, _About]]:
    """Torch's ways to a program that agree with ours and ran once, and what is known of every way; its memory is free
    after the block.

    Args:
      peer: Of the program, or None.
      device: JAX's.
      where: Torch's.
      arguments: The program's.
      last: Time of `time.perf_counter` after which nothing begins.

    Returns:
      Calls by name, which return when all is computed; and by name {"difference"}, or {"refused"} with the reason.
    """
    if peer is None or time.perf_counter() > last:
        yield {}, {} if peer is None else {"torch": {"refused": _LATE}}
        return
    import torch

    calls, about = _ready(peer, device, where, arguments, last)
    try:
        torch.set_float32_matmul_precision("high")
        yield calls, about
    finally:
        torch.set_float32_matmul_precision("highest")
        calls.clear()
        gc.collect()
        if where == "cuda":
            torch.cuda.empty_cache()


def interleaved(ours: Callable[[], Any], calls: _Ways, about: _About, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round: ours by the name "", and torch's; ours alone if torch fails, and `about` says why."""
    try:
        return harness.interleaved({"": ours, **calls}, rounds)
    except RuntimeError as error:
        if isinstance(error, jax.errors.JaxRuntimeError):
            raise
        about.update({way: {"refused": _line(error)} for way in calls})
        return harness.interleaved({"": ours}, rounds)


def _ready(
    peer: Peer, device: Any, where: str, arguments: tuple[Any, ...], last: float
) -> tuple[_Ways, dict[str, dict[str, Any]]]:
    """What `beside` gives."""
    import torch

    calls: _Ways = {}
    about: _About = {}
    try:
        differences = _differences(peer, device, where)
        torch.set_float32_matmul_precision("high")
        ways = peer.ways(where, arguments)
    except RuntimeError as error:  # out of memory
        return {}, {"torch": {"refused": _line(error)}}
    for way, call in ways.items():
        found = differences[way]
        if isinstance(found, str):
            about[way] = {"refused": found}
        elif not found <= peer.tolerance:
            about[way] = {"refused": f"differs from ours by {found:.1e}"}
        elif time.perf_counter() > last:
            about[way] = {"refused": _LATE}
        else:
            try:
                call()
                calls[way], about[way] = call, {"difference": found}
            except RuntimeError as error:
                about[way] = {"refused": _line(error)}
    return calls, about


@functools.cache
def _differences(peer: Peer, device: Any, where: str) -> dict[str, float | str]:
    """Largest difference of every way from ours on the small arguments, or why it does not run."""
    import torch

    torch.set_float32_matmul_precision("highest")
    found: dict[str, float | str] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        jax.default_device(device),
        jax.default_matmul_precision("highest"),
    ):
        function, arguments = peer.small(pathlib.Path(folder))
        ours = jax.jit(function)(*arguments)
        for way, call in peer.ways(where, arguments, pathlib.Path(folder)).items():
            try:
                found[way] = _difference(ours, call())
            except RuntimeError as error:  # the compiler
                found[way] = _line(error)
    return found


def _difference(ours: Any, theirs: Any) -> float:
    """Largest difference between arrays, or dicts of them, relative to ours where that is beyond 1."""
    if isinstance(ours, dict):
        return float(np.max([_difference(ours[name], theirs[name]) for name in ours]))  # NaN if one is
    exact = np.asarray(ours, np.float64)
    other = np.asarray(theirs.cpu() if hasattr(theirs, "cpu") else theirs, np.float64)
    return float(np.max(np.abs(other - exact) / np.maximum(1, np.abs(exact))))


def _both(device: str, call: Callable[[], Any]) -> _Ways:
    """Without torch's compiler, and with it where it is used."""
    ways = {"torch": _eager(device, call)}
    return {**ways, "torch.compile": _finished(device, call)} if device in _COMPILED else ways


def _eager(device: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call without what would be compiled in it."""
    import torch

    def eager() -> Any:
        with torch.compiler.set_stance("force_eager"):
            return call()

    return _finished(device, eager if device in _COMPILED else call)


def _exactly(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call whose products are those of float32."""
    import torch

    def exact() -> Any:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            return call()
        finally:
            torch.set_float32_matmul_precision(before)

    return exact


def _finished(device: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that returns when the device has done all of it."""
    import torch

    def finished() -> Any:
        result = call()
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    return finished


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
