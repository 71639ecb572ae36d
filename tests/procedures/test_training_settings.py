"""Decisions under the settings by which a training finds its own errors: the same as without."""

import jax
import numpy as np
import pytest
import training_settings

import tdd
from tdd.validate import settings

RNG = np.random.default_rng(0)
NULLS, SCORES = RNG.normal(size=50), np.append(RNG.normal(size=30) - 1, np.nan)
PAIR, PANEL = np.stack([NULLS, NULLS + 1]), np.stack([SCORES, SCORES])
COPIES = np.stack([SCORES + RNG.normal(size=31)] * 2, axis=1)
P = RNG.random(20)
ON_DEVICE = jax.device_put(P.astype(np.float32))
ORDERS = RNG.normal(size=(6, 9))
CALLS = {
    "ptdi": lambda: tdd.ptdi(NULLS, SCORES, alpha=0.2),
    "best_score": lambda: tdd.best_score(PAIR, PANEL, alpha=0.2),
    "combined_score": lambda: tdd.combined_score(PAIR, PANEL, alpha=0.2),
    "td4eval": lambda: tdd.td4eval(PAIR, PANEL, alpha=0.2),
    "jmcs": lambda: tdd.jmcs(PAIR, PANEL, alpha=0.2),
    "jecs": lambda: tdd.jecs(PAIR, PANEL, alpha=0.2),
    "ktd": lambda: tdd.ktd(SCORES, COPIES, alpha=0.2),
    "weighted": lambda: tdd.weighted_conformal_p_values(NULLS, SCORES, np.ones(50), np.ones(31), null="nonmember"),
    "dkw_fdp_bounds": lambda: tdd.dkw_fdp_bounds(P, num_calibration=50, delta=0.1),
    "exchangeability": lambda: tdd.exchangeability(ORDERS[:, 0], ORDERS[:, 1:3]),
    "conformal_martingale": lambda: tdd.conformal_martingale(P),
    "lond": lambda: tdd.lond(P, alpha=0.2),
    "bh": lambda: tdd.bh(ON_DEVICE, alpha=0.2),
}


@pytest.mark.filterwarnings("ignore:jecs controls")
@pytest.mark.parametrize("name", CALLS)
def test_a_decision_does_not_depend_on_the_settings(name):
    expected = jax.tree.map(np.asarray, CALLS[name]())
    with training_settings.strict():
        found = CALLS[name]()
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, found), expected)


ONE_BY_ONE = {
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "to the device": lambda: jax.transfer_guard_host_to_device("disallow"),
    "from the device": lambda: jax.transfer_guard_device_to_host("disallow"),
    "between devices": lambda: jax.transfer_guard_device_to_device("disallow"),
}


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_one_setting_alone_is_put_aside(name):
    names = [*training_settings.STRICT, *settings._GUARDS]

    def values():
        return {name: getattr(jax.config, name) for name in names}

    before = values()
    with ONE_BY_ONE[name]():
        given = values()
        assert given != before
        with settings.in_own_settings():
            within = values()
            assert settings._are_own()
            CALLS["td4eval"]()
        assert values() == given
    assert within["jax_debug_nans"] is within["jax_debug_infs"] is False
