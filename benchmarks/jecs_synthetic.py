"""GCR and power of joint selections on JECS's synthetic set-up: five models, 600 calibration and 1,400 audited items.

At signal 2 the compositions of single-model selections, by Storey-BH and by BH; at signal 3 the joint procedures.
JECS's table 1 has its union and intersection at signal 2 (by Storey-BH, where eq. 5 says BH). JECS selects nothing
there, and no signal gives its JECS row (GCR .038, .087, .162; ours at signal 3: .017, .107, .202). Besides, what JECS
does where its asymptotics have not begun (every contaminated item a member of one of two models). All repetitions of a
setting run in one compiled call.

    python -m benchmarks.jecs_synthetic
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from tdd.procedures.jecs import jecs, jmcs
from tdd.study import JointLabels, Sample, runner
from tdd.study.baselines import COMPOSITIONS, composed, joint_metrics, selected_by_each
from tdd.study.claims.joint import one_model_each

LEVELS = (0.1, 0.2, 0.3)
SMALL = ((100, 200, 1), (300, 700, 1), (99, 10_000, 20), (2_000, 2_000, 20), (20_000, 20_000, 200))  # last: thinning

Selections = Mapping[str, Callable[[Sample, float], jax.Array]]


def _composition(sample: Sample, alpha: float, how: Any, step: Any) -> jax.Array:
    return composed(selected_by_each(sample.calibration, sample.scores, alpha=alpha, step=step), how)


def _joint(sample: Sample, alpha: float, call: Callable[..., Any]) -> jax.Array:
    return call(sample.calibration, sample.scores, alpha=alpha).selected


COMPOSED: Selections = {
    f"{how}{suffix}": partial(_composition, how=how, step=step)
    for step, suffix in (("storey", ""), ("bh", ", BH"))
    for how in COMPOSITIONS
}
JOINT: Selections = {
    "jecs": partial(_joint, call=jecs),
    "jmcs": partial(_joint, call=jmcs),
    "jmcs/storey": partial(_joint, call=partial(jmcs, rule="storey")),
    "jmcs/by": partial(_joint, call=partial(jmcs, rule="by")),
}


def measure(
    draw: Callable[[jax.Array], Sample], selections: Selections, levels: tuple[float, ...], repetitions: int, batch: int
) -> list[dict[str, Any]]:
    """One row a procedure and level: mean and standard error of GCP and power."""

    def one(key: jax.Array) -> jax.Array:
        sample = draw(key)
        found = [
            joint_metrics(select(sample, alpha), sample.target) for select in selections.values() for alpha in levels
        ]
        return jnp.stack([jnp.stack(metrics) for metrics in found])

    outcome = np.asarray(runner.simulate(one, seed=0, repetitions=repetitions, batch=batch))
    error = outcome.std(0, ddof=1) / np.sqrt(repetitions)
    cells = [(name, alpha) for name in selections for alpha in levels]
    return [
        {
            "procedure": name,
            "alpha": alpha,
            "gcr": float(mean[0]),
            "gcr_se": float(se[0]),
            "power": float(mean[1]),
            "power_se": float(se[1]),
        }
        for (name, alpha), mean, se in zip(cells, outcome.mean(0), error, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=600)
    repetitions = parser.parse_args().repetitions
    start, settings = time.perf_counter(), []
    for signal, selections in ((2.0, COMPOSED), (3.0, JOINT)):
        draw = JointLabels(signal=signal).draw
        about = {"models": 5, "calibration": 600, "candidates": 1_400, "signal": signal, "labels": "Bernoulli(0.25)"}
        settings.append(
            about | {"repetitions": repetitions, "rows": measure(draw, selections, LEVELS, repetitions, 50)}
        )
        print(harness.table(settings[-1]["rows"]), flush=True)
    small = {name: JOINT[name] for name in ("jecs", "jmcs", "jmcs/storey")}
    for n, m, thinning in SMALL:
        count = max(repetitions // thinning, 20)
        draw = partial(one_model_each, num_calibration=n, contaminated=m // 2, pure=m - m // 2)
        rows = measure(draw, small, (0.1,), count, max(1, min(100, 200_000 // (n + m))))
        about = {"models": 2, "calibration": n, "candidates": m, "signal": 4.0, "labels": "one model each, half pure"}
        settings.append(about | {"repetitions": count, "rows": rows})
        print(harness.table(settings[-1]["rows"]), flush=True)
    path = harness.write(
        "jecs_synthetic",
        {
            "command": f"python -m benchmarks.jecs_synthetic --repetitions {repetitions}",
            "version": tdd.__version__,
            "seed": 0,
            "seconds": time.perf_counter() - start,
            "settings": settings,
        },
    )
    print(path.name)


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    main()
