"""The options of a training run."""

from __future__ import annotations

import dataclasses

from tdd.lab.checks import check_count, check_range
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_positive

__all__ = ["COMPUTE_DTYPES", "TrainConfig"]

COMPUTE_DTYPES = ("float32", "bfloat16")
"""Types that forward and backward passes can run in. Not float16: its gradients underflow without loss scaling."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Options of a training run.

    Attributes:
      epochs: Passes over the texts.
      batch_size: Texts (or windows of long texts) that go through the model at once.
      accumulate: Batches whose gradients make one step, each weighted by its number of scored tokens: the gradient is
        that of `accumulate * batch_size` texts, in the memory of `batch_size`. The last step of an epoch takes the
        remaining batches.
      learning_rate: Highest learning rate.
      warmup: Fraction of the steps on which the rate rises linearly, 0..1.
      final: Fraction of the highest rate that the cosine ends at, 0..1.
      weight_decay: Decoupled; not applied to biases and norms.
      beta1, beta2, eps: Options of Adam.
      clip_norm: Largest global gradient norm.
      max_length: Largest number of tokens in a sequence; longer texts are cut into windows. The model's own limit
        applies if it is smaller.
      num_buckets: Largest number of different padded lengths, and so of compiled shapes.
      compute_dtype: "float32", or "bfloat16" for mixed precision: products with weights in that type, accumulated in
        float32; weights, optimizer state, norms, biases, softmax and loss stay float32.
      save_every: Steps between two saved states, if there is an output folder.
      seed: Random seed of the order of the texts, and of LoRA's factors.
    """

    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 3e-4
    warmup: float = 0.05
    final: float = 0.1
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip_norm: float = 1.0
    max_length: int = 1024
    num_buckets: int = 4
    save_every: int = 200
    seed: int = 0
    accumulate: int = 1
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "num_buckets", "save_every", "accumulate"):
            check_count(name, getattr(self, name), minimum=1)
        check_count("max_length", self.max_length, minimum=2)
        check_count("seed", self.seed, minimum=0)
        for name in ("learning_rate", "weight_decay"):
            check_range(name, getattr(self, name), 0.0)
        check_positive(eps=self.eps)
        for name in ("warmup", "final", "beta1", "beta2"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        for name in ("beta1", "beta2"):
            if getattr(self, name) == 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)!r}; Adam divides by 1 - {name}")
        check_range("clip_norm", self.clip_norm, 1e-12)
        check_choice("compute_dtype", self.compute_dtype, COMPUTE_DTYPES)
