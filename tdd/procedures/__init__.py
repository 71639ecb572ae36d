"""The procedures: each composes kernels, names its guarantee and checks its input. All scores are loss-like."""
