"""Whether a model fits on a device, with which batch, and how fast the device could score: an estimate, from shapes."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from tdd.device_kinds import DeviceKind
from tdd.models.attention import QUERY_BLOCK
from tdd.models.decoder import init_params
from tdd.models.spec import DecoderSpec, Experts
from tdd.validate import InputError

_SHARE = {"cpu": 1.0, "gpu": 0.75, "tpu": 0.95}
"""Share of the memory that JAX uses by default."""

_REACHED = {2: 0.4, 4: 0.1}
"""Share of the bfloat16 peak that scoring reaches, by bytes of a weight."""

_BLOCKS = 16
"""Blocks of queries in attention, of long rows."""

ASSUMPTIONS = (
    "JAX uses 75% of a GPU's memory (XLA_PYTHON_CLIENT_MEM_FRACTION) and 95% of a TPU's",
    "every device holds the whole model",
    "scoring reaches 40% of the bfloat16 peak with 16-bit weights and 10% with float32 (a model narrower than 4,096 "
    "reaches less), or reads the weights at the full bandwidth, whichever takes longer",
    "all rows have the full length; temporary memory follows the shapes of the largest arrays that live together",
)


@dataclasses.dataclass(frozen=True)
class Budget:
    """What `estimate` finds. Sizes in bytes."""

    num_params: int  # parameters
    active_params: int  # those that one token meets: of a mixture only its own experts
    params_bytes: int  # their size
    available: int  # memory that JAX may use
    length: int  # tokens of a row
    batch: int  # rows that fit together, at most those of `tokens`; 0 if not even one does
    tokens: int  # tokens of the batch; `token_budget` of `tdd.score`
    temporary: int  # temporary memory of that batch, or of one row if none fits
    flops_per_token: float  # floating-point operations of scoring one token
    tokens_per_second: float | None  # scored tokens a second; None if nothing fits or the device's speed is not known

    @property
    def fits(self) -> bool:
        """Whether at least one row does."""
        return self.batch > 0


def usable(kind: DeviceKind) -> DeviceKind:
    """A kind of device with the share of its memory that JAX takes by default."""
    return dataclasses.replace(kind, memory=kind.memory and int(kind.memory * _SHARE[kind.platform]))


def estimate(
    spec: DecoderSpec, dtype: Any, kind: DeviceKind, *, token_budget: int, tile: int, length: int | None = None
) -> Budget:
    """Whether a model can score texts on one device, with which batch, and how fast it could be.

    Nothing is measured: the numbers rest on `ASSUMPTIONS`.

    Args:
      spec: The architecture.
      dtype: Type of the parameters.
      kind: The device, whose memory is what JAX may use of it (`usable`).
      token_budget: Tokens of a batch at most, of at least one row.
      tile: Rows of logits that the head holds at a time.
      length: T, tokens of a row; by default the model's positions, at most 2,048.

    Raises:
      InputError: a length beyond the model's positions, or a CPU, which shares the host's memory.
    """
    if kind.memory is None:
        raise InputError("device='cpu' shares the memory of its host; name an accelerator or a size such as 16GiB")
    length = min(spec.max_length, 2048) if length is None else length
    if not 1 <= length <= spec.max_length:
        raise InputError(f"length={length} must be at least 1 and at most the model's {spec.max_length} positions")
    dtype = jnp.dtype(dtype)
    shapes = jax.eval_shape(lambda key: init_params(spec, key, dtype), jax.random.key(0))
    num_params = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    active_params = num_params - _inactive(spec)
    params_bytes = num_params * dtype.itemsize
    room = kind.memory - params_bytes
    needed_by = functools.partial(temporary, spec, dtype, length=length, tile=tile)
    batch = next((rows for rows in range(max(1, token_budget // length), 0, -1) if needed_by(rows) <= room), 0)
    tokens = batch * length
    flops = _flops(spec, active_params, length)
    speed = None
    if batch and kind.peak is not None and kind.bandwidth is not None:
        computing = flops * tokens / (kind.peak * _REACHED[max(2, dtype.itemsize)])
        speed = tokens / max(computing, params_bytes / kind.bandwidth)
    needed = needed_by(max(batch, 1))
    return Budget(num_params, active_params, params_bytes, kind.memory, length, batch, tokens, needed, flops, speed)


def temporary(spec: DecoderSpec, dtype: Any, batch: int, *, length: int, tile: int) -> int:
    """Bytes that live together in the largest step of trunk and head."""
    attention, rows = spec.attention, batch * length
    stream = 4 * rows * spec.width
    qkv = 4 * rows * sum(attention.qkv_widths)
    queries = min(length, max(QUERY_BLOCK, -(-length // _BLOCKS)))
    scores = 2 * 4 * batch * attention.num_heads * queries * length
    mixing = 3 * stream + 2 * qkv + scores
    inner = (
        rows * (5 * mlp.top_k * (3 * mlp.width + 2 * spec.width) + 12 * mlp.shared_width)  # with padding of the blocks
        if isinstance(mlp, Experts)
        else 4 * rows * mlp.width * (3 if mlp.gated else 2)
        for mlp in {*spec.mlps}
    )
    multilayer = 3 * stream + max(inner)
    hidden = rows * spec.readout_width * (4 + dtype.itemsize)
    head = hidden + 2 * 4 * min(rows, tile) * spec.vocab_size
    return max(mixing, multilayer, head)


def _inactive(spec: DecoderSpec) -> int:
    """Parameters of the experts that one token does not meet."""
    mixtures = [mlp for mlp in spec.mlps if isinstance(mlp, Experts)]
    return sum((mlp.num_experts - mlp.top_k) * 3 * spec.width * mlp.width for mlp in mixtures)


def _flops(spec: DecoderSpec, active_params: int, length: int) -> float:
    """Operations of one token: two for each weight of a product, and attention to half of the positions."""
    looked_up = spec.vocab_size * spec.embedded_width * (not spec.tied_head)
    attention = spec.attention
    mixing = sum(4 * attention.num_heads * attention.head_dim * min(w or length, length / 2) for w in attention.windows)
    return 2.0 * (active_params - looked_up) + mixing
