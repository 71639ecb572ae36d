"""Checkpoints with quantised weights: what their configurations say, which tensors hold a weight, and its numbers."""
