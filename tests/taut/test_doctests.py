"""The examples in the docstrings of what the package offers."""

import doctest
import inspect

import pytest

import taut

FUNCTIONS = [name for name in taut.__all__ if inspect.isfunction(getattr(taut, name))]
SLOW = {"best_schedule", "published_schedule"}
"""Functions whose result depends on how long they search."""
COMPILED = {"place", "place_strategy", "plot_schedule", "schedule_page"}
"""Functions whose loops take a quarter of a minute or more to compile."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_have_examples(name: str) -> None:
    """Every public function shows how it is called."""
    assert "Examples\n" in (inspect.getdoc(getattr(taut, name)) or "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.proof if name in COMPILED else ())
        for name in taut.__all__
        if name not in SLOW
    ],
)
def test_examples_print_what_they_say(name: str) -> None:
    """Every example of a public name runs and prints what stands below it."""
    found = doctest.DocTestFinder(recurse=False).find(getattr(taut, name), name, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS)
    for test in found:
        runner.run(test, out=lambda text: pytest.fail(text, pytrace=False))
