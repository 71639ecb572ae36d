"""A procedure written in one file by a user, in every place that takes procedures."""

import concurrent.futures
import dataclasses
import threading
import time
import warnings
from fractions import Fraction

import jax
import numpy as np
import pytest
from rich.console import Console

import tdd
from tdd.demo.data import demo_files
from tdd.procedures.procedure import all_guarantees, known_procedures
from tdd.report.audit import audit_report
from tdd.report.sections import to_terminal
from tdd.study import NormalShift
from tdd.study import run as run_study


@dataclasses.dataclass(frozen=True)
class ConformalBonferroni(tdd.Procedure):
    """Conformal p-values, then Bonferroni's procedure."""

    name = "conformal_bonferroni"
    guarantee = tdd.Guarantee(
        "FWER <= alpha", ("non-member candidates are exchangeable with the calibration items",), "finite-sample", "own"
    )

    share: float = 1.0  # of alpha that is spent

    def select(self, evidence, alpha, key=None):
        p = tdd.conformal_p_values(
            evidence.calibration,
            evidence.scores,
            null=self.null,
            calibration_mask=evidence.calibration_mask,
            mask=evidence.mask,
        )
        step = tdd.bonferroni(jax.numpy.minimum(p / self.share, 1), alpha, mask=evidence.mask)
        n = jax.numpy.sum(~jax.numpy.isnan(jax.numpy.asarray(evidence.calibration)))
        return self.selection(step, p, n)


RNG = np.random.default_rng(0)
CALIBRATION, SCORES = RNG.normal(size=999), RNG.normal(size=40) - np.where(np.arange(40) < 20, 6, 0)


def selected(share=1.0):
    p = (1 + (CALIBRATION[:, None] <= SCORES).sum(0)) / 1000
    return p / share * 40 <= 0.1


def table():
    rows = [{"id": f"c{i}", "role": "calibration", "loss": x} for i, x in enumerate(CALIBRATION)]
    return [*rows, *({"id": f"t{i}", "role": "candidate", "loss": x} for i, x in enumerate(SCORES))]


def test_select_and_its_report(tmp_path):
    audit = tdd.select(table(), alpha=0.1, method=ConformalBonferroni(), out=tmp_path / "run")
    np.testing.assert_array_equal(audit.items["selected"], selected())
    assert audit.run["options"]["method"] == "conformal_bonferroni"
    assert audit.run["options"]["share"] == 1.0
    assert audit.run["decision"]["guarantee"]["controls"] == "FWER <= alpha"
    assert audit.run["certificate"]["reason"] == "the distribution of its statistics under the null is unknown"
    console = Console(record=True, width=120)
    console.print(to_terminal(audit_report(audit.run, audit.items)))
    assert "FWER <= alpha" in (said := console.export_text())
    assert "conformal_bonferroni" in said


@pytest.mark.parametrize("text", ["conformal_bonferroni:share=0.5", ConformalBonferroni(share=0.5)])
def test_by_name_with_options(text):
    audit = tdd.select(table(), alpha=0.1, method=text)
    np.testing.assert_array_equal(audit.items["selected"], selected(0.5))
    assert audit.run["options"]["share"] == 0.5


@pytest.mark.slow("long")
def test_run_audit():
    files = demo_files()
    own = tdd.run_audit(
        files.checkpoint, files.candidates, files.calibration, alpha=0.1, score="loss", method=ConformalBonferroni()
    )
    p = np.asarray(own.items["p_value"])
    np.testing.assert_array_equal(own.items["selected"], p * len(p) <= 0.1)


def test_a_study():
    design = NormalShift(num_calibration=999, num_tests=20, signal=5.0)
    found = run_study(design, [ConformalBonferroni(), "bh"], alphas=[0.1], repetitions=200)
    assert found.methods == ("conformal_bonferroni", "bh")
    fdr, power = np.asarray(found.fdr), np.asarray(found.power)
    assert fdr.reshape(2)[0] < 0.05  # FWER <= .1 * 10/20
    assert 0.5 < power.reshape(2)[0] < power.reshape(2)[1]


def test_expected_power():
    options = {"num_calibration": 999, "num_tests": 50, "member_share": 0.5, "repetitions": 100, "search": False}
    scores = tdd.study.NormalScores(auc=0.999)
    own, bh = (tdd.study.expected_power(scores, method=method, **options) for method in (ConformalBonferroni(), "bh"))
    assert own.about["method"] == "conformal_bonferroni"
    assert 0.3 < own.rows[0]["power"] < bh.rows[0]["power"]


def test_the_table_of_guarantees():
    (row,) = [row for row in all_guarantees() if row.call.endswith("ConformalBonferroni")]
    assert row.guarantee == ConformalBonferroni.guarantee


@pytest.mark.parametrize(
    ("method", "needs"),
    [(tdd.PTDI("moment"), "members"), (tdd.JMCS(), "several models"), (tdd.KTD("conformal"), "calibration_knockoffs")],
)
def test_what_needs_more_than_a_plan_draws(method, needs):
    with pytest.raises(
        tdd.InputError, match=rf"method '{method.label}' needs {needs}, which a power plan does not draw"
    ):
        tdd.study.expected_power(tdd.study.NormalScores(0.9), method=method)


def test_the_delta_of_a_conditional_selection():
    """The audit's, unless the procedure has its own."""
    by_name, by_text, by_value = (
        tdd.select(table(), alpha=0.1, method=method, delta=0.2)
        for method in ("conditional", "conditional:delta=0.01", tdd.procedures.ConditionalBH(delta=0.01))
    )
    assert by_name.run["options"]["calibration_delta"] == 0.2
    assert by_text.run["options"] == by_value.run["options"]
    assert by_value.run["options"]["calibration_delta"] == 0.01
    assert (np.asarray(by_value.items["p_value"]) >= np.asarray(by_name.items["p_value"])).all()


def test_a_name_of_tdd_is_taken():
    other = dataclasses.make_dataclass(
        "Other", [], bases=(ConformalBonferroni,), namespace={"name": "ptdi"}, frozen=True
    )
    try:
        with pytest.raises(tdd.InputError, match=r"Other has the name of tdd's own 'ptdi'; change it"):
            tdd.procedure("ptdi")
    finally:
        other.name = "other"
    assert tdd.procedure("ptdi") == tdd.PTDI()


@dataclasses.dataclass(frozen=True)
class Untraceable(ConformalBonferroni):
    name = "untraceable"

    def select(self, evidence, alpha, key=None):
        return super().select(evidence, alpha, key) if evidence.scores[0] > 0 else None


def test_what_cannot_be_traced_is_said():
    with pytest.raises(tdd.InputError, match=r"method 'untraceable' failed with key, scores .* traced by jax\.jit"):
        run_study(NormalShift(num_calibration=9, num_tests=4), Untraceable(), alphas=[0.1], repetitions=2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ptdi", tdd.PTDI()),
        ("ptdi:proportion=none,eta=0.1", tdd.PTDI("none", 0.1)),
        ("ktd:rule=conformal", tdd.KTD("conformal", "storey")),
        ("ktd:rule=ktd,offset=0", tdd.KTD("ktd", offset=0)),
        ("td4eval:combine=average,weights=0.25:0.75", tdd.TD4Eval("average", weights=(0.25, 0.75))),
        ("jmcs:rule=storey", tdd.JMCS("storey")),
        ("jecs:grid=0.3:0.5", tdd.JECS((0.3, 0.5))),
        ("best_score", tdd.procedures.BestScore()),
        ("combined_score:rule=cross_fit", tdd.procedures.CombinedScore("cross_fit")),
        ("conditional:rule=dkwm,delta=0.1", tdd.procedures.ConditionalBH("dkwm", 0.1)),
        ("weighted:rule=homogeneous", tdd.procedures.Weighted("homogeneous")),
    ],
)
def test_a_procedure_as_text(text, value):
    assert tdd.procedure(text) == value
    assert hash(value) == hash(tdd.procedure(text))
    assert known_procedures()[value.name] is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pdti", "method 'pdti' is not known; choose one of ptdi, "),
        ("ptdi:rule=bh", "method 'ptdi' has no option 'rule'; it has proportion, eta, unit"),
        ("ptdi:eta", "method 'ptdi:eta' is not NAME:option=value,option=value with each option once"),
        ("ptdi:eta=0.1,eta=0.2", "with each option once"),
        ("ptdi:eta=much", "eta=much is no number"),
        ("ptdi:eta=2", "eta"),
        (
            "ptdi:proportion=best",
            "proportion must be one of 'none', 'subtraction', 'storey', 'moment', 'moment_paper'; got 'best'",
        ),
        ("ptdi:proportion=jackknife", 'gave nothing over "storey"; use proportion="storey"'),
        ("ktd:rule=conformal,proportion=jackknife", 'gave nothing over "storey"; use proportion="storey"'),
        ("ptdi:unit=item,proportion=none", "proportion='none' has no use with unit='item'"),
        ("ktd:rule=multi,proportion=none", "proportion='none' belongs to rule 'conformal' of method 'ktd'"),
        ("jecs:grid=0.3:2", "grid"),
        ("jecs:neighbours=5", "neighbours is a function, which no text can say"),
    ],
)
def test_what_is_no_procedure(text, message):
    with pytest.raises(tdd.InputError, match=message):
        tdd.procedure(text)


def test_options_beside_a_value():
    with pytest.raises(tdd.InputError, match=r"eta is an option of the procedure: .* or tdd.PTDI\(eta=0.1\)"):
        tdd.select(table(), alpha=0.1, method=tdd.PTDI(), eta=0.1)


def test_the_fewest_selections():
    assert tdd.PTDI("none").min_selections(99, 1000, 0, 0.1) == 100
    assert tdd.PTDI("storey").min_selections(99, 1000, 500, 0.1) == 3
    assert tdd.PTDI("none").min_selections(9, 10, 0, 0.05) == 11
    assert tdd.KTD("multi").min_selections(0, 100, 0, 0.1, num_knockoffs=5) == 2
    assert tdd.KTD("ktd").min_selections(0, 100, 0, 0.1, num_knockoffs=5) == 10
    assert Fraction(1) == ConformalBonferroni().min_selections(9, 10, 0, 0.1)


@pytest.mark.parametrize("name", ["ptdi/none", "ptdi/storey", "ktd/multi", "td4eval/pooled_rank", "jmcs/by", "jecs"])
def test_a_name_of_studies_is_a_value(name):
    cls = known_procedures()[name.partition("/")[0]]
    assert tdd.study.method(name).name == name
    value = tdd.study.method(name).select.procedure
    assert isinstance(value, cls)
    assert tdd.study.method(value) == tdd.study.method(name)


@dataclasses.dataclass(frozen=True)
class Warns(ConformalBonferroni):
    """Warns of itself, slowly."""

    name = "warns"

    words: str = ""

    def select(self, evidence, alpha, key=None):
        for _ in range(3):
            time.sleep(0.02)
            warnings.warn(self.words, stacklevel=2)
        return super().select(evidence, alpha, key)


def test_warnings_stay_with_their_decision():
    """Two threads decide while a third warns of something else."""
    begin, done = threading.Barrier(3), threading.Event()

    def decide(words):
        begin.wait()
        return tdd.select(table(), alpha=0.1, method=Warns(words=words)).run["warnings"]

    def other():
        begin.wait()
        while not done.wait(0.005):
            warnings.warn("of another thread", stacklevel=1)

    before = warnings.showwarning
    with warnings.catch_warnings(record=True) as shown, concurrent.futures.ThreadPoolExecutor(3) as pool:
        noise = pool.submit(other)
        found = [*pool.map(decide, ("first", "second"))]
        done.set()
        noise.result()
    assert "of another thread" in {str(one.message) for one in shown}
    for said, own in zip(found, ("first", "second"), strict=True):
        assert said.count(own) == 3
        assert not {"first", "second", "of another thread"} & set(said) - {own}
    assert warnings.showwarning is before


@dataclasses.dataclass(frozen=True)
class Asks(ConformalBonferroni):
    """Waits for a decision that another thread makes meanwhile, and then for one of its own thread."""

    name = "asks"

    def select(self, evidence, alpha, key=None):
        def decide(words):
            return tdd.select(table(), alpha=0.1, method=Warns(words=words)).run["warnings"]

        pool = concurrent.futures.ThreadPoolExecutor(1)
        elsewhere = pool.submit(decide, "elsewhere")
        pool.shutdown(wait=False)  # where it waits for this thread, the time limit ends both
        elsewhere = elsewhere.result(timeout=60)
        inner = decide("inner")
        for said, words in ((elsewhere, "elsewhere"), (inner, "inner")):
            assert said.count(words) == 3
        warnings.warn("outer", stacklevel=2)
        return super().select(evidence, alpha, key)


def test_a_procedure_may_wait_for_the_decision_of_another_thread():
    before = warnings.showwarning, warnings.filters[:]
    said = tdd.select(table(), alpha=0.1, method=Asks()).run["warnings"]
    assert "outer" in said
    assert not {"elsewhere", "inner"} & set(said)
    assert (warnings.showwarning, warnings.filters) == before


CATCHES = []


@dataclasses.dataclass(frozen=True)
class Overlaps(ConformalBonferroni):
    """Begins a catch of warnings that outlives the decision, as another thread may."""

    name = "overlaps"

    def select(self, evidence, alpha, key=None):
        CATCHES.append(warnings.catch_warnings())
        CATCHES[-1].__enter__()
        return super().select(evidence, alpha, key)


def test_a_catch_that_outlives_the_decision_leaves_warnings_that_can_be_shown():
    with warnings.catch_warnings(record=True):
        for _ in range(2):
            tdd.select(table(), alpha=0.1, method=Overlaps())
            CATCHES.pop().__exit__(None, None, None)
            warnings.warn("shown as ever", stacklevel=1)  # without end, if it were shown by what shows it
