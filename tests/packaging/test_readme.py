"""The README says what the results and the code say."""

import importlib.util
import pathlib

import numpy as np

import tdd
from tdd.scoring.scores import SCORES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_generated_from_the_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # as where the script is run
    spec = importlib.util.spec_from_file_location("benchmark_tables", ROOT / "benchmarks" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert tables.updated(readme) == readme, "run python benchmarks/tables.py --write"


def test_names_exist():
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in SCORES:
        assert f"`{name}`" in readme
    for name in ("conformal_p_values", "ptdi", "bh", "storey_bh", "by", "holm", "bonferroni", "hochberg", "run_audit"):
        assert f"tdd.{name}" in readme
        assert getattr(tdd, name)


def test_the_code_of_the_studies_runs(tmp_path, monkeypatch):
    """Word for word, with fewer repetitions."""
    section = (ROOT / "README.md").read_text("utf-8").split("## Studies")[1]
    code = section.split("```python\n")[1].split("```")[0]
    for many in ("1_000_000", "100_000"):
        assert many in code
        code = code.replace(many, "2_000")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    is_member = np.arange(100) < 50
    names = {"scores": rng.normal(size=100) - 2 * is_member, "is_member": is_member}
    exec(code, names)
    assert names["found"].fdr.shape == (3, 3, 1)
    assert (tmp_path / "studies" / "shift" / "results.csv").is_file()
