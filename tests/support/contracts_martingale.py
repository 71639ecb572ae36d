"""p-values of canaries against their own controls; streams depend on their order and are tested elsewhere."""

import jax.numpy as jnp
import numpy as np
import references_martingale as ref
from contract_entry import Entry

from tdd.kernels import martingale

CONTROLS = 9


def canaries(rng, n, m):
    score = rng.integers(-3, 3, m).astype(np.float32)
    controls = rng.integers(-3, 4, (m, CONTROLS)).astype(np.float32)
    if m > 3:
        score[1], controls[3, 2], controls[2] = np.nan, np.nan, np.nan
    return {
        "score": score,
        "controls": controls,
        "uniform": (1 - rng.random(m)).astype(np.float32),
        "mask": rng.random((m, CONTROLS)) < 0.8,
    }


def entry(label, call, reference):
    return Entry("martingale.control_p_value", call, canaries, reference, label=label)


ENTRIES = [
    entry(
        "uniform",
        lambda score, controls, uniform, mask: martingale.control_p_value(score, controls, uniform=uniform, mask=mask),
        lambda score, controls, uniform, mask: ref.control_p_value(score, controls, uniform, mask),
    ),
    entry(
        "conservative",
        lambda score, controls, uniform, mask: (
            martingale.control_p_value(score, controls) + 0.0 * jnp.sum(mask, dtype=score.dtype)
        ),
        lambda score, controls, uniform, mask: ref.control_p_value(score, controls, np.ones(len(score))),
    ),
]

_ORDER = "depends on the order of the items; tests/kernels/"
ELSEWHERE = {
    "online.gamma": "a constant series; tests/kernels/test_online.py",
    **{f"online.{name}": f"{_ORDER}test_online_state.py" for name in ("start", "decide")},
    **{
        f"online_conformal.{name}": f"{_ORDER}test_online_conformal.py"
        for name in ("start", "key_after", "draw", "advance", "p_values")
    },
    **{f"martingale.{name}": f"{_ORDER}test_martingale.py" for name in ("start", "advance", "conformal_martingale")},
    **{f"martingale.{name}": f"{_ORDER}test_martingale.py" for name in ("first_account", "place", "power_bets")},
    **{
        f"change_detection.{name}": f"{_ORDER}test_change_detection.py"
        for name in ("start", "advance", "shiryaev_roberts")
    },
}
