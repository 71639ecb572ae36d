"""Other ways to per-example gradient norms: torch's backward, Opacus, jax_privacy, and `vmap` of `grad`.

Each is given the same parameters and the same loss: the sum of -log p over all tokens of a text but the first.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel

__all__ = ["JAX_PEERS", "Opacus", "TorchBackward", "TorchFunc", "TorchStreamed"]


def _loss(lm: LanguageModel, params: Any, tokens: jax.Array) -> jax.Array:
    """Of one text [T]."""
    log_p = jax.nn.log_softmax(lm.logits(params, tokens[None])[0], axis=-1)
    return -jnp.take_along_axis(log_p[:-1], tokens[1:, None], axis=-1).sum()


def vmap_of_grad(lm: LanguageModel) -> Callable[[Any, jax.Array], jax.Array]:
    """(params, tokens [B, T]) -> norms [B], from a gradient of every example."""

    def norms(params: Any, tokens: jax.Array) -> jax.Array:
        gradients = jax.vmap(jax.grad(functools.partial(_loss, lm)), (None, 0))(params, tokens)
        return jnp.sqrt(sum(jnp.square(g).reshape(len(tokens), -1).sum(1) for g in jax.tree.leaves(gradients)))

    return norms


def jax_privacy_norms(lm: LanguageModel) -> Callable[[Any, jax.Array], jax.Array]:
    """The norms that `jax_privacy.clipped_grad` returns beside the sum of the clipped gradients.

    One example a microbatch, which is its way to small memory. The sum of the gradients is not returned here, so the
    compiler need not form it.
    """
    from jax_privacy import clipped_grad  # pyright: ignore[reportMissingImports]

    clipped = clipped_grad(
        functools.partial(_loss, lm),
        l2_clip_norm=1.0,
        batch_argnums=1,
        keep_batch_dim=False,
        return_grad_norms=True,
        microbatch_size=1,
    )
    return lambda params, tokens: clipped(params, tokens)[1].grad_norms  # type: ignore[index]


JAX_PEERS = {"vmap(grad)": vmap_of_grad, "jax_privacy": jax_privacy_norms}
"""Name -> builder of a pure function, raising ImportError where the package is absent."""


class TorchBackward:
    """transformers' torch model, one text at a time: forward, backward, norm over the gradients of all parameters.

    Args:
      model: On any device, of any type.
    """

    def __init__(self, model: Any) -> None:
        import torch

        self.torch, self.model = torch, model
        self.parameters = list(self.model.parameters())

    def _backward(self, tokens: Any) -> list[Any]:
        """The gradients of all parameters, of one text [T]."""
        ids = self.torch.as_tensor(tokens, dtype=self.torch.long, device=self.model.device)
        self.model.zero_grad(set_to_none=True)
        _torch_loss(self.model(ids[None], use_cache=False).logits, ids).backward()
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def norm(self, tokens: Any) -> Any:
        """Of one text [T], a tensor; one norm a parameter in one call, then the norm of those: the fastest of torch's
        ways."""
        each = self.torch._foreach_norm(self._backward(tokens), 2, dtype=self.torch.float32)
        return self.torch.linalg.vector_norm(self.torch.stack(each))

    def exact(self, tokens: Any) -> float:
        """Of one text [T], the squares added in float64: in float32 a sum of millions has four digits left."""
        return sum(gradient.double().square().sum().item() for gradient in self._backward(tokens)) ** 0.5

    def norms(self, texts: Iterable[Any]) -> np.ndarray:
        """Of every text."""
        return self.torch.stack([self.norm(tokens) for tokens in texts]).cpu().numpy()


class TorchStreamed(TorchBackward):
    """The same, each gradient freed once its norm is taken: for models that leave no room for all gradients."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._each: list[Any] = []
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._take)

    def _take(self, parameter: Any) -> None:
        self._each.append(self.torch.linalg.vector_norm(parameter.grad, dtype=self.torch.float32))
        parameter.grad = None

    def norm(self, tokens: Any) -> Any:
        """Of one text [T], a tensor."""
        self._each.clear()
        self._backward(tokens)
        return self.torch.linalg.vector_norm(self.torch.stack(self._each))


class TorchFunc:
    """`torch.func`'s `vmap` of `grad`: the gradients of all texts of a batch side by side."""

    def __init__(self, model: Any) -> None:
        import torch

        self.torch, self.model = torch, model
        self.parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def norms(self, ids: Any) -> np.ndarray:
        """Of ids [B, T]."""
        from torch.func import functional_call, grad, vmap

        def loss(parameters: Any, ids: Any) -> Any:
            return _torch_loss(functional_call(self.model, parameters, (ids[None],), {"use_cache": False}).logits, ids)

        gradients = vmap(grad(loss), in_dims=(None, 0))(self.parameters, ids).values()
        squares = self.torch.stack([g.flatten(1).float().square().sum(1) for g in gradients])
        return squares.sum(0).sqrt().cpu().numpy()


def _torch_loss(logits: Any, ids: Any) -> Any:
    """Sum of -log p of all tokens of a text [T] but the first, from logits [1, T, V]."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits[0, :-1].float(), ids[1:], reduction="sum")


class Opacus:
    """Opacus' fast gradient clipping: norms without per-example gradients, for untied models of its own layers."""

    def __init__(self, folder: pathlib.Path) -> None:
        import torch
        from opacus.grad_sample import (  # pyright: ignore[reportMissingImports]
            GradSampleModuleFastGradientClipping,
        )
        from transformers import AutoModelForCausalLM

        self.torch = torch
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self.wrapped = GradSampleModuleFastGradientClipping(
            model.train(), batch_first=True, loss_reduction="sum", strict=False, max_grad_norm=1
        )

    def norms(self, tokens: np.ndarray) -> np.ndarray:
        """Of a batch [B, T]."""
        torch = self.torch
        ids = torch.tensor(np.asarray(tokens, np.int64))
        self.wrapped.zero_grad(set_to_none=True)
        logits = self.wrapped(ids, use_cache=False).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="sum").backward()
        return self.wrapped.get_norm_sample().detach().numpy()
