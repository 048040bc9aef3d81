"""
The decorator of the compiled loops: numba in nopython mode, without the interpreter's lock, and kept on disk.

numba is loaded when the first loop is called, so that what calls none is spared it. Where it is not installed, Python
runs the loops: slower, with the same result.

numba keeps compiled code in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the source, else in the
user's cache folder. Where none of them can be written (a read-only installation and home folder) it raises
``RuntimeError``; here the loops are compiled in every process instead, and one warning says so.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial, update_wrapper
from importlib.util import find_spec
from threading import RLock
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
"""No lock, and no entry for callers in C, which would take a tenth of the time of compiling."""
NO_FOLDER = "no locator available"
"""What numba says when none of its cache folders can be written."""


def jit(function: Function) -> Function:
    """Compile a function of numba's subset of Python on its first call, and keep the code for later processes."""
    return cast("Function", Loop(function, _OPTIONS))


def jit_inside(function: Function) -> Function:
    """Compile for compiled callers alone, without the entry from Python, a quarter of the time; others would crash."""
    return cast("Function", Loop(function, _OPTIONS | {"no_cpython_wrapper": True}))


def jit_with(fastmath: set[str]) -> Callable[[Function], Function]:
    """Compile as ``jit`` does, with LLVM's liberties in floating-point arithmetic, such as ``{"reassoc"}``."""
    return partial(cast("Any", Loop), options=_OPTIONS | {"fastmath": fastmath})


def called_inside(function: Function) -> Function:
    """A function that Python calls as it is, and that loops may call."""
    _PLAIN.add(function)
    return function


_PLAIN: set[Callable[..., Any]] = set()
_LOCK = RLock()


class Loop:
    """A function, and what runs in its place from the first call on: numba's, or its own in Python."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self._options = cast("FunctionType", function), options
        self._run: Callable[..., Any] | None = None
        self._is_kept: bool | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the loop."""
        return (self._run or self.prepared())(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        """What numba says of the loop, such as its ``signatures``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.prepared(), name)

    def __reduce__(self) -> str:
        """By its name, as functions are."""
        return self.py_func.__qualname__

    @property
    def has_code(self) -> bool:
        """Whether numba has compiled or loaded it in this process."""
        return bool(getattr(self._run, "signatures", ()))

    @property
    def is_kept(self) -> bool:
        """Whether an earlier process has left code to load, where numba is loaded already."""
        if self._is_kept is None and "numba" in sys.modules:
            cache = getattr(self.prepared(), "_cache", None)
            self._is_kept = bool(getattr(cache, "names", dict)())
        return bool(self._is_kept)

    def prepared(self) -> Callable[..., Any]:
        """What runs the loop; loops that it names are prepared with it, as numba knows its own alone."""
        with _LOCK:
            if self._run is None and not has_numba():
                self._run = _quiet(in_python(self))
            elif self._run is None:
                for name, value in _named(self.py_func):
                    if isinstance(value, Loop):
                        self.py_func.__globals__[name] = value.prepared()
                    elif isinstance(value, FunctionType) and value in _PLAIN:
                        _register(value)
                self._run = _compiled(self.py_func, self._options)
            return self._run


@cache
def has_numba() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@cache
def _register(function: Callable[..., Any]) -> None:
    from numba.extending import register_jitable

    register_jitable(function)


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names of the module that a function uses, with their values."""
    names, waiting = dict[str, None](), [function.__code__]
    while waiting:
        code = waiting.pop()
        names.update(dict.fromkeys(code.co_names))
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    module = function.__globals__
    return ((name, module[name]) for name in names if name in module)


def _compiled(function: FunctionType, options: dict[str, Any]) -> Callable[..., Any]:
    """Numba's dispatcher of a function."""
    from numba import njit

    loop = njit(**options)(function)
    try:
        # What ``enable_caching`` does, with another cache; numba has no public place for one.
        loop._cache = _kept()(function)  # noqa: SLF001 -- numba has no public place
    except RuntimeError as error:
        if NO_FOLDER not in str(error):
            raise
        _warn_of_compilation()
    return cast("Callable[..., Any]", loop)


@cache
def _kept() -> Any:
    """Compiled code on disk, made anew where it names a module or type that has moved, which numba does not see."""
    from numba.core.caching import FunctionCache
    from numba.core.runtime.nrt import rtsys

    class Kept(FunctionCache):
        def names(self: Any) -> Any:
            return self._cache_file._load_index()  # noqa: SLF001 -- numba has no public place

        def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
            # numba loads its whole library of types first, a third of a second, which machine code does not need.
            rtsys.initialize(target_context)
            try:
                with self._guard_against_spurious_io_errors():
                    return self._load_overload(sig, target_context)
            except (ImportError, AttributeError):
                self.flush()
            return None

    return Kept


LOADING = 0.1
"""Share of the work that Python does before a loop that an earlier process compiled is loaded: some milliseconds."""


class Warming:
    """
    A loop that Python runs until it has done ``most`` units of work in this process, and numba from then on.

    To compile takes seconds, which a job that has little work for a loop need not spend. Both ways give one result.
    """

    def __init__(self, loop: Callable[..., Any], most: float) -> None:
        self._loop, self._most, self._done = cast("Loop", loop), most, 0.0
        self._in_python: Callable[..., Any] | None = None

    def __call__(self, work: float, *arguments: Any) -> Any:
        """Call the loop, which does so much work."""
        self._done += work
        kept = self._done > self._most * LOADING and self._loop.is_kept
        if kept or self._done > self._most or self._loop.has_code:
            return self._loop(*arguments)
        self._in_python = self._in_python or _quiet(in_python(self._loop))
        return self._in_python(*arguments)


def in_python(loop: Any) -> Callable[..., Any]:
    """The function that a loop was made from, calling those that its loops were made from."""
    made = cast("FunctionType", loop.py_func)
    called = {name: in_python(each) for name, each in _named(made) if hasattr(each, "py_func")}
    return FunctionType(made.__code__, made.__globals__ | called, made.__name__, made.__defaults__)


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose figures overflow and divide by zero without a word, as in compiled code."""

    def call(*arguments: Any, **named: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **named)

    return call


@cache
def _warn_of_compilation() -> None:
    """Say once for each process that nothing is kept."""
    warnings.warn(
        "no folder for compiled code can be written, so every run compiles anew (some 10 s and more); "
        "NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=4,
    )


@jit
def longer(rows: NDArray[Any], room: int) -> NDArray[Any]:
    """Copy of a contiguous array with room for so many rows."""
    copy = np.empty((room, *rows.shape[1:]), rows.dtype)
    # A slice that an array is assigned to takes two seconds to compile.
    new, old = copy.reshape(copy.size), rows.reshape(rows.size)
    for i in range(len(old)):
        new[i] = old[i]
    return copy
