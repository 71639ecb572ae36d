"""KTD's training sets under models: the whole of it at a tiny size, and the levels against plain arithmetic."""

import numpy as np
import pytest

from benchmarks import audit_tables
from benchmarks import training_sets as script
from benchmarks.reproductions.ptdi_ktd import Sizes
from tdd.study.named import load
from tdd.study.named.record import StudyOptions

SIZES = Sizes(members=24, nonmembers=24, knockoffs=(2,), max_length=48, epochs=1)


@pytest.fixture(scope="module")
def measured():
    return script.under_models(2, SIZES, 8, scale=0.02)


@pytest.mark.slow("training")
def test_every_design_study_and_value_has_its_means(measured):
    rows, (columns, results) = measured
    assert {row["design"] for row in rows} == {"original", "drawn"}
    assert columns.source == "model 0, drawn"
    assert columns.labels.sum() == 24
    assert columns.knockoffs.shape == (48, 2)
    for name, field in script.STUDIES.items():
        own = [row for row in rows if row["study"] == name]
        assert len(own) == 2 * len([*results[name].rows()])
        assert {row["value"] for row in own} == {cell[field] for cell in results[name].cells}
    # the mean and the standard error of the two models of one cell
    one, other = (
        script.thinned(script.scored(script.base_model(None, scale=0.02, seed=0), "drawn", seed, SIZES), 8)
        for seed in (0, 1)
    )
    first, second = (next(iter(result["ktd-imbalance"].rows())) for result in (one, other))
    found = next(row for row in rows if row["study"] == "ktd-imbalance" and row["design"] == "drawn")
    assert found["power"] == pytest.approx((first["power"] + second["power"]) / 2)
    assert found["power_se"] == pytest.approx(abs(first["power"] - second["power"]) / 2)


@pytest.mark.slow("long")
def test_the_levels_are_those_of_the_study(tmp_path, measured):
    (row,) = script.promised(tmp_path, {"ktd-dilution": 20})
    study = load("ktd-dilution")
    rows = [*study.run(StudyOptions(20, study.alphas)).rows()]
    exact = [one for one in rows if one["method"] != "ktd/ktd"]
    assert (row["promised"], row["unpromised"]) == (len(exact), len(rows) - len(exact))
    excess = np.array([one["fdr"] - one["alpha"] - 3 * one["fdr_se"] for one in exact])
    highest = max(one["fdr"] / one["alpha"] for one in exact)
    assert (row["above"], row["highest"]) == (int((excess > 0).sum()), pytest.approx(highest))
    again = script.promised(tmp_path, {"ktd-dilution": 20})  # from its folder
    assert again == [row]
    head = {"command": "x", "models": 2, "members": 24, "knockoffs": 2, "repetitions": 8}
    page = audit_tables.training_sets({**head, "rows": measured[0], "levels": [row]})
    wide = next(one for one in measured[0] if (one["method"], one["value"], one["alpha"]) == ("ktd/multi", 1, 0.2))
    assert "| text | rule | one tested in 1 | one tested in 2 |" in page
    assert f"| original | ktd/multi | {wide['fdr']:.3f} / {wide['power']:.3f} |" in page
    assert f"| ktd-dilution | 20 | {row['promised']} |" in page
