"""Contract entries of the Monte Carlo kernels: their arrays are repetitions and pools, not items with masks."""

ENTRIES = []

ELSEWHERE = {
    "tally.update": "its last axis holds repetitions; tests/kernels/test_tally.py",
    "tally.zero": "likewise",
}
