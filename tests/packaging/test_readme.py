"""The README says what the results and the code say."""

import importlib.util
import pathlib

import tdd
from tdd.scoring.scores import SCORES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_generated_from_the_results():
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
