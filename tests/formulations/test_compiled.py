"""Compiled loops run where their code can be kept, and where it cannot."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from taut.formulations import compiled
from taut.formulations.compiled import Warming, jit, jit_with

ROOT = Path(__file__).parents[2]
SOURCES = ("src/taut", "formulations", "solver", "tests", "benchmarks")
UNCACHED = """
import numpy as np
from numba.core import caching

def refuse(locator):
    raise OSError(30, "Read-only file system")

caching._CacheLocator.ensure_cache_path = refuse

from taut.formulations.schedules.recurrence import execute
from taut.solver.qap.swap_neighbourhood import draw_below

assert execute.stats.cache_path is None
assert 0 <= draw_below(np.array([1], dtype=np.uint64), 5) < 5
"""


def test_compiles_and_keeps_the_options_it_is_given() -> None:
    """Both spellings of the decorator compile; the loops hold no lock and are cached."""

    @jit
    def double(number: float) -> float:
        return 2.0 * number

    @jit_with(fastmath={"reassoc"})
    def triple(number: float) -> float:
        return 3.0 * number

    assert (double(21.0), triple(14.0)) == (42.0, 42.0)
    plain, fast = (_loop(each).prepared().targetoptions for each in (double, triple))
    assert plain["nogil"] and fast["nogil"]
    assert fast["fastmath"] == {"reassoc"}


def test_runs_uncached_with_one_warning_where_no_folder_can_be_written() -> None:
    """A read-only installation and home folder cost the kept code and nothing else; one warning says so."""
    ran = subprocess.run([sys.executable, "-c", UNCACHED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("RuntimeWarning") == 1
    assert "NUMBA_CACHE_DIR" in ran.stderr


@pytest.mark.proof
def test_code_of_a_moved_module_is_compiled_anew(tmp_path: Path) -> None:
    """Code kept for an argument whose type has moved to another module is no error: it is compiled and kept anew."""
    record = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n"
    loop = "from taut.formulations.compiled import jit\n@jit\ndef added(pair):\n    return pair.a + pair.b\n"
    (tmp_path / "loop.py").write_text(loop)
    (tmp_path / "here.py").write_text(record)
    (tmp_path / "there.py").write_text(record)
    for module in ("here", "there", "there"):
        made = (
            f"import loop, {module}; print(loop.added({module}.Pair(1, 2)), sum(loop.added.stats.cache_hits.values()))"
        )
        ran = subprocess.run([sys.executable, "-c", made], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        (tmp_path / "here.py").unlink(missing_ok=True)
    assert ran.stdout.split() == ["3", "1"]


def test_code_that_an_earlier_process_left_is_loaded_soon(tmp_path: Path) -> None:
    """After a tenth of the work of a loop that is compiled late, where numba is loaded; the results are equal."""
    loop = (
        "from taut.formulations.compiled import Warming, jit\n"
        "@jit\ndef twice(x):\n    return 2 * x\ntwo = Warming(twice, 100)\n"
    )
    (tmp_path / "loop.py").write_text(loop)
    for work, kept in ((90, "False"), (110, "True"), (20, "True")):
        made = f"import numba, loop; print(loop.two({work}, 4), loop.twice.has_code)"
        ran = subprocess.run([sys.executable, "-c", made], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.stdout.split(), ran.stderr) == (["8", kept], "")


def test_other_errors_of_the_compiler_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the missing folder is forgiven."""

    def broken(_: object) -> object:
        raise RuntimeError("another matter")

    monkeypatch.setattr(compiled, "_kept", lambda: broken)
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="another matter"):
        jit(_loop(_doubled).py_func)(1.0)


@jit
def _doubled(x: float) -> float:
    return 2.0 * x


@jit
def _sum_of_doubles(many: int) -> float:
    total = 0.0
    for k in range(many):
        total += _doubled(0.1 * k)
    return total


def test_python_runs_a_loop_until_it_has_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loop with little work returns is the same, and nothing is compiled for it."""
    monkeypatch.setattr(compiled.Loop, "is_kept", False)
    price = Warming(_sum_of_doubles, 15)
    few = price(10, 10)
    assert _signatures(_sum_of_doubles) + _signatures(_doubled) == 0
    assert price(10, 10) == few
    assert _signatures(_sum_of_doubles) == 1


def _loop(function: Any) -> Any:
    """A compiled loop as what it is: for types it is the function that it was made from."""
    return function


def _signatures(loop: Any) -> int:
    """How many types of arguments a loop is compiled for."""
    return len(loop.signatures)


def test_loops_without_an_entry_from_python_are_called_by_loops_alone() -> None:
    """No other function, and no test, of the file or of one that imports it names a function under ``jit_inside``."""
    callers = re.compile(r"(?:@jit|@jit_with\(.*\)|@jit_inside)\ndef .*?(?=\n\n\n|\Z)", re.DOTALL)
    texts = {path: path.read_text(encoding="utf-8") for folder in SOURCES for path in (ROOT / folder).rglob("*.py")}
    inside = [(path, name) for path, text in texts.items() for name in re.findall(r"@jit_inside\ndef (\w+)", text)]
    assert len(inside) >= 100
    for path, text in texts.items():
        outside = re.sub(r"^(?:from|import) .*?(?:\([^)]*\))?$", "", callers.sub("", text), flags=re.MULTILINE)
        for home, name in inside:
            if path == home or re.search(rf"import .*\b{name}\b", text):
                assert not re.search(rf"(?<![\w.]){name}\(", outside), (str(path), name)
