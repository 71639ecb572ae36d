"""The main programs at the sizes that matter, as functions of shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from tdd.kernels.platforms import one_device

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
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    trips: float = 1.0
    work: int = 0
    donated: tuple[int, ...] = ()


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


@functools.lru_cache
def _model(name: str) -> Any:
    from tdd.models.families.gpt import GPT2
    from tdd.models.families.llama import LLAMA
    from tdd.models.language_model import language_model

    gpt2 = {
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    }
    llama = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "head_dim": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return language_model(GPT2.to_spec(gpt2) if name == "gpt2" else LLAMA.to_spec(llama))


def _weights(lm: Any, dtype: str) -> Any:
    from tdd.models.decoder import init_params

    return jax.eval_shape(lambda key: init_params(lm.spec, key, jnp.dtype(dtype)), jax.random.key(0))


def _batch(lm: Any, dtype: str, batch: int, length: int) -> tuple[Any, ...]:
    return _weights(lm, dtype), _SHAPE((batch, length), jnp.int32), _SHAPE((batch, length), jnp.bool_)


def _token_stats(name: str, dtype: str, batch: int, length: int, wanted: tuple[str, ...]) -> Program:
    from tdd.scoring.token_stats import tiling, trunk_rows, wanted_statistics

    lm = _model(name)

    @one_device()
    def statistics(params: Any, tokens: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
        hidden = trunk_rows(lm, params, tokens, jnp.arange(batch * length))
        targets, scored = (jnp.roll(x, -1, axis=1).reshape(-1) for x in (tokens, mask))
        return wanted_statistics(lm, params, hidden, targets, scored, None, wanted)

    trips = -(-batch * length // tiling("gpu").chunk)
    return Program(statistics, _batch(lm, dtype, batch, length), trips, batch * length)


def _grad_norms(name: str, dtype: str, batch: int, length: int) -> Program:
    from tdd.scoring.gradients import grad_norms

    lm = _model(name)
    return Program(
        one_device()(functools.partial(grad_norms, lm)), _batch(lm, dtype, batch, length), work=batch * length
    )


def _lab_update(device: Any, batch: int, length: int) -> Program:
    import optax

    from tdd.device_kinds import kind_of
    from tdd.lab.step import Weights, fills, update

    lm, optimizer = _model("gpt2"), optax.scale_by_adam()
    weights = Weights(compute_dtype="bfloat16", remat=fills(lm, kind_of(device), batch, length))
    trained, *rows = _batch(lm, "float32", batch, length)
    moments = jax.eval_shape(optimizer.init, trained)
    arguments = (trained, moments, *rows, _SHAPE((), jnp.float32))

    step = functools.partial(update, lm, optimizer, weights, None)
    return Program(step, arguments, work=batch * length, donated=(0, 1))


def _kernel(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Program:
    """A kernel on 1,000 lists of 1,000 items."""
    arguments = tuple(_SHAPE((_KERNEL_SIZE, *shape), jnp.float32) for shape in shapes)
    return Program(jax.vmap(function), arguments, work=_KERNEL_SIZE)


def _kernels() -> Iterator[tuple[str, Callable[[Any], Program]]]:
    from tdd.kernels import conformal, hommel, local_fdr, stepup

    items = (_KERNEL_SIZE,)

    def p_values(calibration: jax.Array, scores: jax.Array) -> jax.Array:
        return conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))

    yield "bh", lambda device: _kernel(lambda p: stepup.bh(p, 0.1).reject, items)
    yield "conformal p-values", lambda device: _kernel(p_values, items, items)
    yield "hommel", lambda device: _kernel(lambda p: hommel.hommel(p, 0.1).reject, items)
    yield "local fdr", lambda device: _kernel(lambda p: local_fdr.local_fdr(p).local_fdr, items)


_THREE = ("log_prob", "mu", "sigma")

PROGRAMS: dict[str, Callable[[Any], Program]] = {
    "resample 775": lambda device: _resample(device, 775),
    "resample 11,332": lambda device: _resample(device, 11_332),
    "joint pool": _joint_pool,
    "joint fresh": _joint_fresh,
    "token statistics, GPT-2, float32, 16 x 1024": lambda d: _token_stats("gpt2", "float32", 16, 1024, _THREE),
    "token statistics, GPT-2, bfloat16, 16 x 1024": lambda d: _token_stats("gpt2", "bfloat16", 16, 1024, _THREE),
    "token statistics, 7B, bfloat16, 2 x 2048": lambda d: _token_stats("llama", "bfloat16", 2, 2048, _THREE),
    "token statistics, 7B, bfloat16, 4 x 4096": lambda d: _token_stats("llama", "bfloat16", 4, 4096, _THREE),
    "gradient norms, GPT-2, bfloat16, 8 x 1024": lambda d: _grad_norms("gpt2", "bfloat16", 8, 1024),
    "gradient norms, 7B, bfloat16, 4 x 2048": lambda d: _grad_norms("llama", "bfloat16", 4, 2048),
    "laboratory's update, GPT-2, bfloat16, 16 x 1024": lambda d: _lab_update(d, 16, 1024),
    **dict(_kernels()),
}
