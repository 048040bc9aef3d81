"""
The decorator of the compiled loops: numba in nopython mode, without the interpreter's lock, and kept on disk.

numba keeps compiled code in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the source, else in the
user's cache folder. Where none of them can be written (a read-only installation and home folder) it raises
``RuntimeError``; here the loops are compiled in every process instead, and one warning says so.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
"""No lock, and no entry for callers in C, which would take a tenth of the time of compiling."""
NO_FOLDER = "no locator available"
"""What numba says when none of its cache folders can be written."""


def jit(function: Function) -> Function:
    """Compile a function of numba's subset of Python on its first call, and keep the code for later processes."""
    return _compiled(function, False)


def jit_inside(function: Function) -> Function:
    """
    Compile as ``jit`` does a function that compiled functions alone call; a call from Python would end the process.

    The entry for callers in Python, which takes every array out of its tuple, is a quarter of the time of compiling.
    """
    return _compiled(function, False, _OPTIONS | {"no_cpython_wrapper": True})


def jit_with(fastmath: set[str]) -> Callable[[Function], Function]:
    """Compile as ``jit`` does, with LLVM's liberties in floating-point arithmetic, such as ``{"reassoc"}``."""
    return partial(_compiled, fastmath=fastmath)


def _compiled(function: Function, fastmath: bool | set[str], options: dict[str, Any] = _OPTIONS) -> Function:
    loop = njit(fastmath=fastmath, **options)(function)
    try:
        # What ``enable_caching`` does, with another cache; numba has no public place for one.
        loop._cache = cast("Any", _Kept)(function)  # noqa: SLF001 -- numba has no public place
    except RuntimeError as error:
        if NO_FOLDER not in str(error):
            raise
        _warn_of_compilation()
    return cast("Function", loop)


class _Kept(FunctionCache):
    """Compiled code on disk, made anew where it names a module or type that has moved, which numba does not see."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        kept = cast("Any", super())
        try:
            return kept.load_overload(sig, target_context)
        except (ImportError, AttributeError):
            kept.flush()
            return None


class Warming:
    """
    A loop that Python runs until it has done ``most`` units of work in this process, and numba from then on.

    To compile takes seconds, which a job that has little work for a loop need not spend. Both ways give one result.
    """

    def __init__(self, loop: Callable[..., Any], most: float) -> None:
        self._loop, self._most, self._done = cast("Any", loop), most, 0.0
        self._in_python: Callable[..., Any] | None = None

    def __call__(self, work: float, *arguments: Any) -> Any:
        """Call the loop, which does so much work."""
        self._done += work
        if self._done > self._most or self._loop.signatures:
            return self._loop(*arguments)
        self._in_python = self._in_python or _in_python(self._loop)
        with np.errstate(all="ignore"):
            return self._in_python(*arguments)


def _in_python(loop: Any) -> Callable[..., Any]:
    """The function that a loop was made from, calling those that its loops were made from."""
    made = cast("FunctionType", loop.py_func)
    names = {name: made.__globals__[name] for name in made.__code__.co_names if name in made.__globals__}
    called = {name: _in_python(each) for name, each in names.items() if isinstance(each, Dispatcher)}
    return FunctionType(made.__code__, made.__globals__ | called, made.__name__, made.__defaults__)


@cache
def _warn_of_compilation() -> None:
    """Say once for each process that nothing is kept."""
    warnings.warn(
        "no folder for compiled code can be written, so every run compiles anew (some 10 s and more); "
        "NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=4,
    )
