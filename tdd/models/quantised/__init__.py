"""Checkpoints with quantised weights: what their configurations say, which tensors hold a weight, and its numbers."""

from tdd.models.quantised.view import Dequantised

__all__ = ["Dequantised"]
