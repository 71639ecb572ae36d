"""What importing costs and what it touches; which layer may see which."""

import ast
import graphlib
import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

import tdd

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A package may import those of its own row and of the rows above it; texts, models and procedures not each
# other.
LAYERS = [
    {"kernels"},
    {"records", "validate", "cores", "device_kinds", "placement"},
    {"runs"},
    {"texts", "models", "procedures"},
    {"scoring", "lab"},
    {"audit", "study", "exchange", "probe", "demo"},
    {"report"},
    {"cli", "__main__", "on_ray"},
]
APART = LAYERS[3]
DRIVES = LAYERS[5]
BESIDE = {("demo", "audit"), ("probe", "exchange"), ("study", "probe")}
"""Imports among drivers; what others of them share lies below."""
ALIASES = {"tables": "texts", "logprobs": "texts"}  # read by the readers of texts


def layer_of(name):
    name = ALIASES.get(name, name)
    return next(i for i, row in enumerate(LAYERS) if name in row), name


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "tdd":
                yield from (f"tdd.{alias.name}" for alias in node.names)


def sources():
    for path in sorted([*(ROOT / "kernels").glob("*.py"), *(ROOT / "tdd").rglob("*.py")]):
        relative = path.relative_to(ROOT)
        if relative.parts[:2] == ("tdd", "kernels") or relative == pathlib.Path("tdd/__init__.py"):
            continue
        yield path, relative.parts[0] if relative.parts[0] == "kernels" else relative.parts[1].removesuffix(".py")


@pytest.mark.slow("long")
def test_layers():
    checked = 0
    for path, own in sources():
        rank, own = layer_of(own)
        for module in imports_of(path):
            if not module.startswith("tdd."):
                continue
            other_rank, other = (
                layer_of(module.split(".")[1]) if module.split(".")[1] in known_rooms() else (None, None)
            )
            if other is None:
                continue  # a public name of the package itself, as __version__
            checked += 1
            assert other_rank <= rank, f"{path}: {own} may not import {module}"
            if own in APART and other in APART:
                assert own == other, f"{path}: {own} and {other} meet in records only"
            if own != other and own in DRIVES and other in DRIVES:
                assert (own, other) in BESIDE, f"{path}: {own} may not import {module}; move what both need below them"
    assert checked > 100


@pytest.mark.slow("long")
def test_no_circle_of_files():
    """Imports inside functions count; those for type checkers alone do not."""
    files = {}
    for path, _ in sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = ("tdd", *parts) if parts[0] == "kernels" else parts
        files[".".join(parts).removesuffix(".__init__")] = path
    graph = {module: {name for name in names_of(path, files) if name != module} for module, path in files.items()}
    assert sum(map(len, graph.values())) > 1000
    graphlib.TopologicalSorter(graph).prepare()


def names_of(path, files):
    """The files that a file imports."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & files.keys() or {node.module} & files.keys()


def known_rooms():
    return set().union(*LAYERS) | set(ALIASES)


def test_kernels_import_jax_and_numpy_only():
    allowed = {"jax", "numpy", "tdd", "__future__"} | set(sys.stdlib_module_names)
    for path in (ROOT / "kernels").glob("*.py"):
        for module in imports_of(path):
            assert module.split(".")[0] in allowed, f"{path}: {module}"


@pytest.mark.slow("long")
def test_nobody_imports_a_top_level_kernels_or_nnx():
    for path in [*ROOT.glob("kernels/*.py"), *ROOT.glob("tdd/**/*.py"), *ROOT.glob("tests/**/*.py")]:
        for module in imports_of(path):
            assert module.split(".")[0] != "kernels", path
            assert not module.startswith("flax.nnx"), path


def test_public_names():
    assert sorted(tdd.__all__) == dir(tdd)
    for name in tdd.__all__:
        value = getattr(tdd, name)
        assert value is getattr(tdd, name)
        if name != "__version__":
            assert value.__doc__, f"tdd.{name} has no docstring"
    assert len(tdd.__all__) <= 90
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = tdd.nothing


def test_names_that_moved():
    for module, names in tdd._MOVED.items():
        for name in names:
            assert getattr(getattr(tdd, module), name).__doc__
            with pytest.raises(AttributeError, match=rf"^tdd\.{name} is now tdd\.{module}\.{name}$"):
                getattr(tdd, name)


def exists(dotted):
    module, *names = dotted.split(".")
    found = importlib.import_module(module)
    for name in names:
        module = f"{module}.{name}"
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                found = importlib.import_module(module)
            except ImportError:
                return False
    return True


def test_names_in_sentences_and_pages_exist():
    """Docstrings, messages, reports and READMEs name what there is, also after a name has moved."""
    named = {}
    for pattern in ("kernels/*.py", "tdd/**/*.py", "benchmarks/**/*.py", "*.md", "*/README.md", "tdd/*/README.md"):
        for path in ROOT.glob(pattern):
            for dotted in re.findall(r"(?<![\w./-])tdd(?:\.[A-Za-z_]\w*)+", path.read_text("utf-8")):
                named.setdefault(dotted, path)
    named.pop("tdd.findings")  # a logger
    assert len(named) > 400
    assert {dotted: path for dotted, path in named.items() if not exists(dotted)} == {}


def test_kernels_are_reachable_as_attributes():
    code = "import sys, tdd; f = tdd.kernels.stepup.bh; tdd.kernels.conformal.rank; assert 'kernels' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert {path.stem for path in (ROOT / "kernels").glob("*.py")} <= set(dir(tdd.kernels))
    with pytest.raises(AttributeError, match="nothing"):
        _ = tdd.kernels.nothing


def test_import_is_light():
    """Neither jax nor flax nor transformers, and well under 0.3 s beyond Python's own start."""
    code = (
        "import sys, time, json; t = time.perf_counter(); import tdd; s = time.perf_counter() - t;"
        "print(json.dumps([s, [m for m in ('jax', 'flax', 'transformers', 'numpy') if m in sys.modules]]))"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    assert runs[0][1] == []
    assert min(seconds for seconds, _ in runs) < 0.3


def test_help_is_light():
    code = (
        "import sys, time, contextlib, io, json; t = time.perf_counter(); from tdd.cli import main\n"
        "try:\n  with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps([time.perf_counter() - t, 'jax' in sys.modules, 'rich' in sys.modules]))"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    assert runs[0][1:] == [False, False]
    assert min(run[0] for run in runs) < 0.7


@pytest.mark.slow("long")
def test_an_audit_crosses_few_modules(tmp_path):
    """A command loads what it uses: the page with its figures, a decoder, one score and one procedure, no more."""
    code = (
        "import json, sys; from tdd.cli import main; from tdd.demo.data import demo_files; files = demo_files()\n"
        "status = main(['audit', str(files.checkpoint), '--candidates', str(files.candidates), '--calibration', "
        "str(files.calibration), '--out', sys.argv[1], '--quiet'])\n"
        "print(json.dumps([status, [m for m in sys.modules if m.split('.')[0] == 'tdd' and m not in "
        "('tdd.demo', 'tdd.demo.data')]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], check=True, capture_output=True, text=True
    )
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert (tmp_path / "run" / "report.html").is_file()
    assert len(modules) <= 109
    assert {"tdd.procedures.ptdi", "tdd.procedures.ktd"} & {*modules} == {"tdd.procedures.ptdi"}


def test_every_module_imports():
    for path, _ in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        module = f"tdd.{module}" if module.startswith("kernels") else module
        if not module.endswith(("__init__", "__main__")):
            importlib.import_module(module)


def test_functions_are_short_and_take_few_arguments():
    """At most 12 parameters; at most 80 lines beside the docstring, 120 with it."""
    lengths = {}
    for path, _ in sources():
        for owner, function in functions_of(ast.parse(path.read_text("utf-8"))):
            name = ".".join(filter(None, (owner, function.name)))
            given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
            first = function.body[0]
            described = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
            lengths[path, name] = length = function.end_lineno - function.lineno + 1
            assert length <= 120, f"{path}: {name} has {length} lines"
            assert length - described <= 80, f"{path}: {name} has {length - described} lines beside its docstring"
            assert len([one for one in given if one.arg not in ("self", "cls")]) <= 12, f"{path}: {name}"
    assert len(lengths) > 1000


def functions_of(tree, owner=""):
    """(class, function) of every function, those inside functions included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, node
        yield from functions_of(node, node.name if isinstance(node, ast.ClassDef) else owner)
