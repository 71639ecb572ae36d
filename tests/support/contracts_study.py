"""Contract entries of the Monte Carlo kernels: their arrays are repetitions and pools, not items with masks."""

ENTRIES = []

ELSEWHERE = {
    "tally.update": "its last axis holds repetitions; tests/kernels/test_tally.py",
    "tally.zero": "likewise",
    **{
        f"resample.{name}": "splits of a pool, one a lane; tests/kernels/test_resample.py"
        for name in ("decide", "draw", "hashed_bits", "threefry_bits")
    },
    **{
        f"resample_pool.{name}": "on the host; tests/kernels/test_resample.py"
        for name in ("fixed_split", "half_split", "prepare", "tails")
    },
}
