"""The main programs at the sizes that matter, as functions of shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from benchmarks.aot import models, peers

__all__ = ["PROGRAMS", "Program", "filled", "placed"]

_SHAPE = jax.ShapeDtypeStruct
_KERNEL_SIZE = 1_000
_TOKENS = 30_000
_LARGEST = 0.04


class Program(NamedTuple):
    """A function and its arguments, as shapes on one device.

    Attributes:
      function: Traceable.
      arguments: Arrays, or shapes and types of arrays that may hold anything.
      trips: Steps of its loops whose number is only known while it runs.
      work: Repetitions, tokens or lists of one call.
      donated: Arguments whose memory the results may take.
      peer: The same in torch, where torch has it.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    trips: float = 1.0
    work: int = 0
    donated: tuple[int, ...] = ()
    peer: peers.Peer | None = None


def placed(tree: Any, device: Any) -> Any:
    """Shapes and types of a tree, on a device."""
    sharding = SingleDeviceSharding(device)

    def one(x: Any) -> jax.ShapeDtypeStruct:
        x = x if hasattr(x, "dtype") else jnp.asarray(x)
        return jax.ShapeDtypeStruct(jnp.shape(x), x.dtype, sharding=sharding)

    return jax.tree.map(one, tree)


def filled(tree: Any, device: Any) -> Any:
    """The arrays of a tree on a device; what is only a shape gets small random numbers, token ids or True."""

    def one(x: Any) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return jax.device_put(x, device)
        with jax.default_device(device):
            if x.dtype == jnp.bool_:
                return jnp.ones(x.shape, bool)
            if jnp.issubdtype(x.dtype, jnp.integer):
                return jax.random.randint(jax.random.key(0), x.shape, 0, _TOKENS, x.dtype)
            return jax.random.uniform(jax.random.key(0), x.shape, x.dtype, maxval=_LARGEST)

    return jax.tree.map(one, tree)


class _Captured(BaseException):
    """A study's program and its operands, on the way out of the study."""


def _of_study(device: Any, study: Callable[..., Any], **options: Any) -> Program:
    """The program of one block of a study, caught where the study would run it."""
    from tdd.study import checks, runner

    def catch(program: Any, _: Any, lanes: int, __: int) -> Any:
        def run(operands: Any, first: int, last: int) -> NoReturn:
            raise _Captured(program, operands, lanes)

        return run

    with mock.patch.object(runner, "_on_threads", catch), mock.patch.object(checks, "as_devices", tuple):
        try:
            study(**options, devices=[device])
        except _Captured as caught:
            function, operands, lanes = caught.args
    return Program(function, (operands, np.asarray([0, lanes], np.uint32)), work=lanes)


def _resample(device: Any, size: int) -> Program:
    from tdd.study import resample

    rng = np.random.default_rng(0)
    member = np.arange(size) < size // 2
    scores = rng.normal(size=size) - member
    options = {"alphas": [0.01, 0.05, 0.1, 0.2, 0.5], "methods": ("none", "subtraction"), "repetitions": 2**22}
    return _of_study(device, resample, scores=scores, is_member=member, key=jax.random.key(0), **options)


def _joint_pool(device: Any) -> Program:
    from tdd.study import resample_joint

    rng = np.random.default_rng(0)
    arrays = {"calibration": rng.normal(size=(5, 1200)), "scores": rng.normal(size=(5, 2800))}
    options = {"num_calibration": 600, "num_tests": 1400, "alphas": [0.05, 0.1, 0.2], "repetitions": 2**22}
    return _of_study(device, resample_joint, **arrays, member=rng.random(2800) < 0.5, **options)


def _joint_fresh(device: Any) -> Program:
    from tdd.study import JointLabels, simulate_joint

    return _of_study(device, simulate_joint, design=JointLabels(), alphas=[0.05, 0.1, 0.2], repetitions=2**22)


def _weights(lm: Any, dtype: str) -> Any:
    from tdd.models.decoder import init_params

    return jax.eval_shape(lambda key: init_params(lm.spec, key, jnp.dtype(dtype)), jax.random.key(0))


def _batch(lm: Any, dtype: str, batch: int, length: int) -> tuple[Any, ...]:
    return _weights(lm, dtype), _SHAPE((batch, length), jnp.int32), _SHAPE((batch, length), jnp.bool_)


def _token_stats(name: str, dtype: str, batch: int, length: int) -> Program:
    from tdd.scoring.token_stats import tiling

    lm, trips = models.model(name), -(-batch * length // tiling("gpu").chunk)
    peer = peers.TokenStatistics(name, dtype)
    return Program(models.token_statistics(lm), _batch(lm, dtype, batch, length), trips, batch * length, peer=peer)


def _grad_norms(name: str, dtype: str, batch: int, length: int) -> Program:
    lm, peer = models.model(name), peers.GradientNorms(name, dtype)
    return Program(models.gradient_norms(lm), _batch(lm, dtype, batch, length), work=batch * length, peer=peer)


def _lab_update(device: Any, batch: int, length: int) -> Program:
    import optax

    from tdd.device_kinds import kind_of
    from tdd.lab.step import Weights, fills, update

    lm, optimizer = models.model("gpt2"), optax.scale_by_adam()
    weights = Weights(compute_dtype="bfloat16", remat=fills(lm, kind_of(device), batch, length))
    trained, *rows = _batch(lm, "float32", batch, length)
    moments = jax.eval_shape(optimizer.init, trained)
    arguments = (trained, moments, *rows, _SHAPE((), jnp.float32))

    step = functools.partial(update, lm, optimizer, weights, None)
    return Program(step, arguments, work=batch * length, donated=(0, 1))


_IMAGES_PROMPT = 600
"""Tokens of an image of LLaVA-1.5, 576, and of the instruction around it."""


def _images(device: Any, dtype: str) -> Program:
    """LLaVA-1.5 of 7B parameters describes a batch of images, and reads them with their descriptions."""
    from tdd.audit.images import _batch_size, _read_and_describe
    from tdd.device_kinds import kind_of
    from tdd.kernels.platforms import one_device
    from tdd.models.families.llama import LLAMA
    from tdd.models.vision import VisionLanguageModel, VisionLanguageSpec, VisionTower, _slots

    tower = VisionTower(336, 14, 1024, num_layers=24, num_used=23, num_heads=16, mlp_width=4096)
    text = dataclasses.replace(models.spec("llama"), vocab_size=32_064)
    spec, params = VisionLanguageSpec(tower, text, image_token=32_000), dict[str, Any]()
    for slot in _slots(spec, LLAMA):
        *parents, last = slot.path
        leaf = _SHAPE(slot.whole_shape, jnp.dtype(dtype))
        functools.reduce(lambda tree, name: tree.setdefault(name, {}), parents, params)[last] = leaf
    batch = _batch_size(VisionLanguageModel(spec, params, None), _IMAGES_PROMPT, kind_of(device))
    arguments = (params, _SHAPE((batch, 3, 336, 336), jnp.float32), _SHAPE((_IMAGES_PROMPT,), jnp.int32))
    describe = one_device()(functools.partial(_read_and_describe, spec))
    return Program(lambda *given: describe(*given, False), arguments, work=batch)


def _kernel(function: Callable[..., Any], *shapes: tuple[int, ...], peer: peers.Peer | None = None) -> Program:
    """A kernel on 1,000 lists of 1,000 items."""
    arguments = tuple(_SHAPE((_KERNEL_SIZE, *shape), jnp.float32) for shape in shapes)
    return Program(jax.vmap(function), arguments, work=_KERNEL_SIZE, peer=peer)


def _kernels() -> Iterator[tuple[str, Callable[[Any], Program]]]:
    from tdd.kernels import hommel, local_fdr

    items, alpha = (_KERNEL_SIZE,), peers.ALPHA
    yield "bh", lambda device: _kernel(peers.bh, items, peer=peers.BH)
    yield "conformal p-values", lambda device: _kernel(peers.p_values, items, items, peer=peers.CONFORMAL)
    yield "hommel", lambda device: _kernel(lambda p: hommel.hommel(p, alpha).reject, items)
    yield "local fdr", lambda device: _kernel(lambda p: local_fdr.local_fdr(p).local_fdr, items)


PROGRAMS: dict[str, Callable[[Any], Program]] = {
    "resample 775": lambda device: _resample(device, 775),
    "resample 11,332": lambda device: _resample(device, 11_332),
    "joint pool": _joint_pool,
    "joint fresh": _joint_fresh,
    "token statistics, GPT-2, float32, 16 x 1024": lambda d: _token_stats("gpt2", "float32", 16, 1024),
    "token statistics, GPT-2, bfloat16, 16 x 1024": lambda d: _token_stats("gpt2", "bfloat16", 16, 1024),
    "token statistics, 7B, bfloat16, 2 x 2048": lambda d: _token_stats("llama", "bfloat16", 2, 2048),
    "token statistics, 7B, bfloat16, 4 x 4096": lambda d: _token_stats("llama", "bfloat16", 4, 4096),
    "gradient norms, GPT-2, bfloat16, 8 x 1024": lambda d: _grad_norms("gpt2", "bfloat16", 8, 1024),
    "gradient norms, 7B, bfloat16, 4 x 2048": lambda d: _grad_norms("llama", "bfloat16", 4, 2048),
    "gradient norms, 7B, bfloat16, 1 x 2048": lambda d: _grad_norms("llama", "bfloat16", 1, 2048),
    "images, LLaVA-1.5 7B, bfloat16": lambda device: _images(device, "bfloat16"),
    "laboratory's update, GPT-2, bfloat16, 16 x 1024": lambda d: _lab_update(d, 16, 1024),
    **dict(_kernels()),
}
