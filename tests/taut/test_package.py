"""What the package offers: the names, where they are listed, and that each says what it is."""

import inspect
import re
import subprocess
import sys

import pytest

import taut


@pytest.mark.parametrize("name", taut.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    """Every promised name can be had from the package and has a docstring."""
    assert inspect.getdoc(getattr(taut, name))


def test_names_are_those_that_the_package_lists() -> None:
    """The docstring names what ``__all__`` and ``dir`` do, and nothing else is there."""
    assert set(re.findall(r"``(\w+)``", taut.__doc__ or "")) == set(taut.__all__)
    assert set(dir(taut)) == {*taut.__all__, "__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'plam'; did you mean plan"):
        _ = taut.plam


def test_functions_are_not_hidden_by_modules() -> None:
    """Importing every module leaves the functions ``plan``, ``pareto``, ``predict``, ``place``, ``verify`` in place."""
    code = (
        "import pkgutil, importlib, inspect, taut\n"
        "names = ('plan', 'pareto', 'predict', 'place', 'verify', 'load_plan')\n"
        "homes = [m.name for m in pkgutil.iter_modules(taut.__path__) if m.name != '__main__']\n"
        "[importlib.import_module(f'taut.{home}') for home in homes]\n"
        "assert not set(names) & set(homes), homes\n"
        "assert all(inspect.isfunction(getattr(taut, name)) for name in names)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
