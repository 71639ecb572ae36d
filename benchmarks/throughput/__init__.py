"""Benchmarks: kernels, studies and scoring, each beside its peer in the same run, correct before it is timed."""
