"""A probe in other libraries' loops: stand-ins with the signatures that those libraries document."""

import types

import pytest

from tdd.probe.adapters import levanter_hook, logged, periodic_action, tunix_hooks, write_scalars
from tdd.validate import InputError

SCALARS = {"tdd/p_value": 0.25, "tdd/num_flagged": 3.0}


class Record:
    def __init__(self, step, params):
        self.step, self.params = step, params

    def scalars(self, prefix="tdd/"):
        return {name.replace("tdd/", prefix): value for name, value in SCALARS.items()}


class Probe:
    """A look at every step that `every` divides, one a step."""

    every = 5

    def __init__(self):
        self.looks = []

    def due(self, step):
        return step % self.every == 0 and all(record.step != step for record in self.looks)

    def __call__(self, step, params):
        if not self.due(step):
            return None
        self.looks.append(Record(step, params))
        return self.looks[-1]

    @property
    def seen(self):
        return [(record.step, record.params) for record in self.looks]


class CluWriter:
    """clu.metric_writers.MetricWriter: refuses a metric that it has at that step already."""

    def __init__(self):
        self.rows = {}

    def write_scalars(self, step, scalars):
        assert type(step) is int
        assert not any((step, name) in self.rows for name in scalars)
        self.rows.update({(step, name): float(value) for name, value in scalars.items()})


class TensorboardX:
    def __init__(self):
        self.rows = {}

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
        self.rows[global_step, tag] = scalar_value


class FlaxSummary:
    def __init__(self):
        self.rows = {}

    def scalar(self, tag, value, step):
        self.rows[step, tag] = value


class Wandb:
    """Refuses a step before the last one."""

    def __init__(self):
        self.rows, self.last = {}, -1

    def log(self, data, step=None, commit=None):
        assert step >= self.last
        self.last = step
        self.rows.update({(step, name): value for name, value in data.items()})


class Mlflow:
    def __init__(self):
        self.rows = {}

    def log_metrics(self, metrics, step=None):
        self.rows.update({(step, name): value for name, value in metrics.items()})


class Plain:
    def __init__(self):
        self.rows = {}

    def __call__(self, step, scalars):
        self.rows.update({(step, name): value for name, value in scalars.items()})


WRITERS = (CluWriter, TensorboardX, FlaxSummary, Wandb, Mlflow, Plain)


@pytest.mark.parametrize("kind", WRITERS)
def test_writers(kind):
    writer = kind()
    write_scalars(writer, 10, SCALARS)
    assert writer.rows == {(10, name): value for name, value in SCALARS.items()}


def test_every_writer_gets_every_look():
    probe, writers = Probe(), [kind() for kind in WRITERS]
    watch = logged(probe, *writers)
    records = [watch(step, f"params {step}") for step in range(12)]
    assert [record.step for record in records if record] == [0, 5, 10]
    for writer in writers:
        assert writer.rows == {(step, name): value for step in (0, 5, 10) for name, value in SCALARS.items()}
    assert watch(10, "again") is None


@pytest.mark.parametrize("build", [logged, *(lambda p, w, f=f: f(p, id, w) for f in (levanter_hook, tunix_hooks))])
def test_what_is_no_writer_is_refused_before_training(build):
    with pytest.raises(InputError, match=r"writer int has none of the methods write_scalars.*pass a function of"):
        build(Probe(), 3)


def test_clu_loop():
    probe, writer, asked = Probe(), CluWriter(), []
    state = "none"

    def params():
        asked.append(state)
        return state

    hook = periodic_action(probe, params, writer)
    returned = []
    for step in range(1, 13):
        state = f"after {step}"
        returned.append(hook(step, 0.1 * step) if step % 2 else hook(step))
    assert returned == [step in (5, 10) for step in range(1, 13)]
    assert probe.seen == [(5, "after 5"), (10, "after 10")]
    assert asked == ["after 5", "after 10"], "parameters are gathered only where they are looked at"
    assert sorted(writer.rows)[0][0] == 5


class LevanterTrainer:
    """add_hook and the call of hooks, with `StepInfo.step` the 0-based step that was just completed."""

    def __init__(self):
        self.hooks = []

    def add_hook(self, fn, *, every=1):
        self.hooks.append((fn, every))

    def run_hooks(self, info, force=False):
        for fn, every in self.hooks:
            if force or info.step % every == 0:
                fn(info)

    def train(self, num_steps):
        for done in range(1, num_steps + 1):
            info = types.SimpleNamespace(step=done - 1, next_step=done, model={"w": done}, loss=0.0, step_duration=0.1)
            self.run_hooks(info)
        self.run_hooks(info, force=True)


@pytest.mark.parametrize(("num_steps", "steps"), [(12, [0, 5, 10]), (11, [0, 5, 10])])
def test_levanter_hook(num_steps, steps):
    """Also where the forced last call repeats a step (11) or falls between two (12)."""
    probe, writer, trainer = Probe(), Wandb(), LevanterTrainer()
    trainer.add_hook(levanter_hook(probe, lambda info: info.model["w"], writer), every=probe.every)
    trainer.train(num_steps)
    assert probe.seen == [(step, step + 1) for step in steps]
    assert {step for step, _ in writer.rows} == set(steps)


class TunixTrainer:
    """The order of calls of PeftTrainer: metrics are buffered by one step, the last are written on closing."""

    def __init__(self, train_steps=0):
        self.train_steps, self.model, self.training_hooks = train_steps, f"model {train_steps}", None
        self.rows = {}
        self.metrics_logger = types.SimpleNamespace(log=self.log)

    def log(self, metrics_prefix, metric_name, scalar_value, mode, step):
        self.rows[step, f"{metrics_prefix}/{mode}/{metric_name}"] = scalar_value

    def with_training_hooks(self, training_hooks):
        self.training_hooks = training_hooks

    def train(self, num_steps):
        hooks = self.training_hooks
        hooks.on_train_start(self)
        for step in range(self.train_steps, self.train_steps + num_steps):
            hooks.on_train_step_start(self)
            self.train_steps, self.model = step + 1, f"model {step + 1}"
            if step:
                hooks.on_train_step_end(self, step, 1.0)
            if step == 3:
                hooks.on_eval_step_start(self)
                hooks.on_eval_step_end(self, 1.0)
        hooks.on_train_end(self)
        hooks.on_train_step_end(self, self.train_steps, 1.0)


def test_tunix_hooks_with_the_trainers_logger():
    probe, trainer = Probe(), TunixTrainer()
    trainer.with_training_hooks(tunix_hooks(probe, lambda trainer: trainer.model))
    trainer.train(10)
    assert probe.seen == [(0, "model 0"), (5, "model 5"), (10, "model 10")]
    assert trainer.rows[5, "tdd/train/p_value"] == 0.25
    assert len(trainer.rows) == 6


def test_tunix_hooks_with_a_writer_in_a_run_that_goes_on():
    probe, trainer, writer = Probe(), TunixTrainer(train_steps=7), Plain()
    trainer.with_training_hooks(tunix_hooks(probe, lambda trainer: trainer.model, writer))
    trainer.train(6)
    assert probe.seen == [(10, "model 10")]
    assert {step for step, _ in writer.rows} == {10}
    assert not trainer.rows
