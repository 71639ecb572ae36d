"""One step of training: loss, AdamW with warm-up and cosine decay, the compiled update, the state between two steps.

On accelerators the products of an update in float32 take JAX's default precision, TF32 or bfloat16; what is reported of
a trained model, `mean_loss` too, does not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from tdd.device_kinds import DeviceKind, kind_of
from tdd.kernels.grad_norm import dense
from tdd.kernels.platforms import fast_products, full_precision
from tdd.lab.lora import Lora, init_factors, low_rank_paths, merge
from tdd.lab.recipe import TrainConfig
from tdd.lab.tokens import Batch, Batches
from tdd.models.decoder import Noise, hidden
from tdd.models.gradients import activation_bytes
from tdd.records import LanguageModel
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed

_DROPPED = 0x64726F70
"""Tells the random numbers of dropout from those of LoRA's factors, which have the same seed."""

TILE_ELEMENTS = 1 << 27
"""Largest number of logits that exist at once, 512 MiB in float32: 2,670 targets at V = 50,257.

Chunks save memory and cost time: the backward pass computes the logits of each chunk a second time.
"""


def token_losses(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """-log p(x_t | x_<t) in nats at every scored target, 0 elsewhere; differentiable in `params`.

    If B * T * V exceeds `TILE_ELEMENTS` and the model offers `hidden` and `readout`, targets go through
    the readout in chunks whose logits are computed again for the gradient.

    Args:
      lm, params: The model (static) and its parameters.
      tokens: [B, T] int32.
      mask: [B, T] bool, True at scored targets; column 0 is never scored.

    Returns:
      [B, T] float32.
    """
    batch, length = tokens.shape
    if lm.hidden is None or lm.readout is None:
        losses = _cross_entropy(lm.logits(params, tokens)[:, :-1], tokens[:, 1:])
    else:
        states, weight = lm.hidden(params, tokens)[:, :-1], lm.readout(params)
        rows = batch * (length - 1)
        chunk = max(1, min(rows, TILE_ELEMENTS // lm.vocab_size))
        num_chunks = -(-rows // chunk)
        flat = _pad_rows(states.reshape(rows, -1), num_chunks * chunk).reshape(num_chunks, chunk, -1)
        targets = _pad_rows(tokens[:, 1:].reshape(rows), num_chunks * chunk).reshape(num_chunks, chunk)

        def tile(operands: tuple[jax.Array, jax.Array]) -> jax.Array:
            chunk_states, chunk_targets = operands
            logits = _logits(chunk_states, weight)
            if lm.soft_cap is not None:
                logits = lm.soft_cap * jnp.tanh(logits / lm.soft_cap)
            return _cross_entropy(logits, chunk_targets)

        # chunks one after the other, keeping no logits for the backward pass
        per_chunk = tile((flat[0], targets[0])) if num_chunks == 1 else lax.map(jax.checkpoint(tile), (flat, targets))
        losses = per_chunk.reshape(-1)[:rows].reshape(batch, length - 1)
    return jnp.where(mask, jnp.pad(losses, ((0, 0), (1, 0))), 0.0)


def _logits(states: jax.Array, weight: jax.Array) -> jax.Array:
    """states [N, D] weight^T [V, D], float32; with bfloat16 weights so are the factors of the gradient's products."""
    if weight.dtype == jnp.bfloat16:
        return dense(states[None], weight.T, jnp.zeros(1))[0]
    precision = full_precision(states, weight)
    return jnp.einsum("nd,vd->nv", states, weight, precision=precision, preferred_element_type=jnp.float32)


def _is_decoder(lm: LanguageModel) -> bool:
    return isinstance(lm.hidden, functools.partial) and lm.hidden.func is hidden


def fills(lm: LanguageModel, kind: DeviceKind, batch: int, length: int) -> bool:
    """Whether a decoder's activations on [batch, length] tokens take over a quarter of an accelerator's memory."""
    if not (_is_decoder(lm) and kind.wide):
        return False
    spec: Any = lm.spec
    return activation_bytes(spec, batch, min(length, lm.max_length or length)) > kind.room(0)


def learning_rates(total_steps: int, *, peak: float, warmup: float, final: float) -> np.ndarray:
    """The learning rate of every step, [total_steps] float32.

    With w = ceil(warmup * total_steps), warmup in 0..1: peak * (s + 1) / w for s < w, so that no step is wasted at
    zero; from there half a cosine from peak down to final * peak, final in 0..1, reached at the last step.
    """
    steps = np.arange(total_steps, dtype=np.float64)
    rise = int(np.ceil(warmup * total_steps))
    progress = np.clip((steps - rise + 1) / max(1, total_steps - rise), 0.0, 1.0)
    fall = final + (1.0 - final) * 0.5 * (1.0 + np.cos(np.pi * progress))
    return (peak * np.where(steps < rise, (steps + 1) / max(1, rise), fall)).astype(np.float32)


def decay_mask(params: Any) -> Any:
    """True for parameters that weight decay shrinks: all but biases and everything that belongs to a norm.

    Decided by name, because layers stacked along a leading axis give vectors the shape of matrices.
    """

    def decays(path: tuple[Any, ...], _: Any) -> bool:
        names = jax.tree_util.keystr(path, simple=True, separator="/").lower().split("/")
        return not (names[-1].endswith("bias") or names[-1] == "scale" or any("norm" in name for name in names))

    return jax.tree_util.tree_map_with_path(decays, params)


@functools.cache
def adamw_direction(
    *, beta1: float, beta2: float, eps: float, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter 2019, algorithm 2) without its learning rate, gradients clipped first.

    The update is params <- params - rate * direction, with direction = m / (sqrt(v) + eps) + weight_decay *
    params where `decay_mask` holds; the gradient is scaled to a global norm of at most `clip_norm` before the
    moments m and v. The same object for equal arguments, so that compiled steps are shared.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.scale_by_adam(b1=beta1, b2=beta2, eps=eps),
        optax.add_decayed_weights(weight_decay, mask=decay_mask),
    )


@dataclasses.dataclass(frozen=True)
class Weights:
    """From trained leaves to parameters; static in compiled steps."""

    lora: Lora | None = None  # None if all parameters are trained
    compute_dtype: str = "float32"  # type of the matrices in forward and backward passes
    # True computes a decoder's blocks again in the backward pass instead of keeping their activations
    remat: bool = False
    dropout: float = 0.0  # of the residual stream; LoRA's is its own

    @property
    def drops(self) -> bool:
        """Whether a step needs random numbers."""
        return self.dropout > 0 or (self.lora is not None and self.lora.dropout > 0)

    def losses(
        self, lm: LanguageModel, frozen: Any, trained: Any, tokens: jax.Array, mask: jax.Array, key: Any
    ) -> jax.Array:
        """`token_losses` in training, to be differentiated by `trained`; `key` decides what is dropped."""
        if not self.drops:
            return token_losses(self._with(lm, None), self.working(frozen, trained), tokens, mask)
        noise = Noise(key, self.dropout)
        if self.lora is not None and self.lora.dropout > 0:
            noise = noise._replace(adapted=self.lora.dropout, factors=low_rank_paths(self.lora, trained))
            params = self._rounded(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), frozen))
        else:
            params = self.working(frozen, trained)
        return token_losses(self._with(lm, noise), params, tokens, mask)

    def _with(self, lm: LanguageModel, noise: Noise | None) -> LanguageModel:
        """The model to differentiate."""
        if not self.remat and noise is None:
            return lm
        given: Any = functools.partial(hidden, lm.spec, remat=self.remat)  # pyright: ignore[reportArgumentType]
        return dataclasses.replace(lm, hidden=given if noise is None else functools.partial(given, noise=noise))

    def split(self, params: Any, *, seed: int) -> tuple[Any, Any]:
        """(frozen, trained) at the start: nothing and a float32 copy of all, or the base as it is and the factors."""
        if self.lora is None:
            return None, jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32, copy=True), params)
        return jax.tree.map(jnp.asarray, params), init_factors(self.lora, params, seed=seed)

    def master(self, frozen: Any, trained: Any) -> Any:
        """The float32 parameters that the trained leaves stand for; pure."""
        return trained if self.lora is None else merge(self.lora, frozen, trained)

    def working(self, frozen: Any, trained: Any) -> Any:
        """The parameters that the model runs with: matrices in `compute_dtype`, biases and norms float32; pure."""
        return self._rounded(self.master(frozen, trained))

    def _rounded(self, params: Any) -> Any:
        if self.compute_dtype == "float32":
            return params
        dtype = jnp.dtype(self.compute_dtype)
        return jax.tree.map(lambda leaf, matrix: leaf.astype(dtype) if matrix else leaf, params, decay_mask(params))


class Stepper:
    """The state of a run between two steps.

    Attributes:
      frozen: Parameters that are not trained, or None.
      trained: Parameters or LoRA's factors, float32.
      moments: The optimizer's state.
    """

    def __init__(self, lm: LanguageModel, config: TrainConfig, lora: Lora | None, params: Any) -> None:
        self.weights = Weights(lora, config.compute_dtype, dropout=config.dropout)
        if self.weights.drops and not _is_decoder(lm):
            raise InputError("dropout needs a model whose layers tdd knows, and this one is a function; train without")
        self._seed = config.seed
        self.frozen, self.trained = self.weights.split(params, seed=config.seed)
        device = next(iter(jax.tree.leaves(self.trained)[0].devices()))
        again = fills(lm, kind_of(device), config.batch_size, config.max_length)
        self.lm, self.weights = lm, dataclasses.replace(self.weights, remat=again)
        names = ("beta1", "beta2", "eps", "weight_decay", "clip_norm")
        self.optimizer = adamw_direction(**{name: getattr(config, name) for name in names})
        self.moments = self.optimizer.init(self.trained)
        self._sums = jax.tree.map(jnp.zeros_like, self.trained) if config.accumulate > 1 else None

    @property
    def params(self) -> Any:
        """The model's parameters as they are now; the trained leaves themselves if all parameters are trained."""
        return self.trained if self.weights.lora is None else _merged(self.weights, self.frozen, self.trained)

    def step(self, group: Sequence[Batch], rate: Any, number: int) -> tuple[float, int]:
        """Take step `number` on the batches of `group`; return the summed loss and the number of scored tokens."""
        keys = self._keys(number, len(group))
        if self._sums is None:
            self.trained, self.moments, loss, count = update(
                self.lm, self.optimizer, self.weights, self.frozen, self.trained, self.moments, *group[0], rate, keys[0]
            )
            return float(loss), int(count)
        parts = []
        for batch, key in zip(group, keys, strict=True):
            self._sums, *part = accumulate(self.lm, self.weights, self.frozen, self.trained, self._sums, *batch, key)
            parts.append(part)
        tokens = sum(int(count) for _, count in parts)
        self.trained, self.moments, self._sums = apply(
            self.optimizer, self.trained, self.moments, self._sums, tokens, rate
        )
        return sum(float(loss) for loss, _ in parts), tokens

    def _keys(self, number: int, batches: int) -> list[Any]:
        """The key of each batch of a step, from the seed, the step and the place alone; None without dropout."""
        if not self.weights.drops:
            return [None] * batches
        of_step = jax.random.fold_in(jax.random.fold_in(key_of_seed(self._seed), _DROPPED), number)
        return [jax.random.fold_in(of_step, place) for place in range(batches)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4, 5))
@fast_products()
def update(
    lm: LanguageModel,
    optimizer: optax.GradientTransformation,
    weights: Weights,
    frozen: Any,
    trained: Any,
    moments: Any,
    tokens: jax.Array,
    mask: jax.Array,
    rate: jax.Array,
    key: jax.Array | None = None,
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """Take one step: trained - rate * direction of the mean loss over the batch's scored targets.

    The first three arguments are static; `trained` and `moments` are donated. tokens: [B, T] int32; mask: [B, T] bool,
    with at least one scored target; rate: []; key: decides what is dropped, None without dropout.

    Returns:
      (trained, moments, summed loss before the step, number of scored targets).
    """
    count = jnp.sum(mask)

    def batch_loss(trained: Any) -> jax.Array:
        return jnp.sum(weights.losses(lm, frozen, trained, tokens, mask, key)) / count

    loss, gradients = jax.value_and_grad(batch_loss)(trained)
    trained, moments = _moved(optimizer, trained, moments, gradients, rate)
    return trained, moments, loss * count, count


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
@fast_products()
def accumulate(
    lm: LanguageModel,
    weights: Weights,
    frozen: Any,
    trained: Any,
    sums: Any,
    tokens: jax.Array,
    mask: jax.Array,
    key: jax.Array | None = None,
) -> tuple[Any, jax.Array, jax.Array]:
    """Add the gradient of one batch's summed loss to `sums` (donated); return sums, summed loss, number of targets."""

    def summed_loss(trained: Any) -> jax.Array:
        return jnp.sum(weights.losses(lm, frozen, trained, tokens, mask, key))

    loss, gradients = jax.value_and_grad(summed_loss)(trained)
    return jax.tree.map(jnp.add, sums, gradients), loss, jnp.sum(mask)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2, 3))
def apply(
    optimizer: optax.GradientTransformation, trained: Any, moments: Any, sums: Any, count: jax.Array, rate: jax.Array
) -> tuple[Any, Any, Any]:
    """Take one step along the gradient of the mean loss, `sums` / `count`; the three trees of arrays are donated.

    Returns (trained, moments, sums of zeros for the next step).
    """
    trained, moments = _moved(optimizer, trained, moments, jax.tree.map(lambda leaf: leaf / count, sums), rate)
    return trained, moments, jax.tree.map(jnp.zeros_like, sums)


def mean_loss(lm: LanguageModel, params: Any, batches: Batches) -> float:
    """Mean loss in nats over all scored targets."""
    total = sum(float(_summed_loss(lm, params, *batch)) for batch in batches.in_order())
    return total / sum(len(row) - 1 for row in batches.rows)


def _moved(
    optimizer: optax.GradientTransformation, trained: Any, moments: Any, gradients: Any, rate: jax.Array
) -> tuple[Any, Any]:
    """Trained leaves and moments after one step."""
    direction, moments = optimizer.update(gradients, moments, trained)
    return jax.tree.map(lambda leaf, change: leaf - rate * change, trained, direction), moments


@functools.partial(jax.jit, static_argnums=0)
def _merged(weights: Weights, frozen: Any, trained: Any) -> Any:
    return weights.master(frozen, trained)


@functools.partial(jax.jit, static_argnums=0)
def _summed_loss(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(token_losses(lm, params, tokens, mask))


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """log sum exp z - z_y over the last axis."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _pad_rows(rows: jax.Array, count: int) -> jax.Array:
    """Zeros appended to the leading axis up to `count` rows."""
    return jnp.pad(rows, [(0, count - rows.shape[0])] + [(0, 0)] * (rows.ndim - 1))
