"""
The decorator of the compiled loops: numba in nopython mode, without the interpreter's lock, and kept on disk.

numba keeps compiled code in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the source, else in the
user's cache folder. Where none of them can be written (a read-only installation and home folder) it raises
``RuntimeError``; here the loops are compiled in every process instead, and one warning says so.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

NO_FOLDER = "no locator available"
"""What numba says when none of its cache folders can be written."""


def jit(function: Function) -> Function:
    """
    Compile a function with numba on its first call, and keep the code for later processes if a folder can be written.

    Parameters
    ----------
    function
        A function in numba's subset of Python.

    Returns
    -------
    The compiled function, which is called as the one that it was made from.

    Examples
    --------
    >>> @jit
    ... def double(x: float) -> float:
    ...     return 2.0 * x
    >>> double(21.0)
    42.0
    """
    return _compiled(function, False)


def jit_with(fastmath: set[str]) -> Callable[[Function], Function]:
    """
    Compile as ``jit`` does, with liberties in floating-point arithmetic.

    ``fastmath``: LLVM's names of the liberties, such as ``{"reassoc"}`` for sums in any order. Returns the decorator.
    """
    return partial(_compiled, fastmath=fastmath)


def _compiled(function: Function, fastmath: bool | set[str]) -> Function:
    try:
        return cast("Function", njit(cache=True, nogil=True, fastmath=fastmath)(function))
    except RuntimeError as error:
        if NO_FOLDER not in str(error):
            raise
    _warn_of_compilation()
    return cast("Function", njit(nogil=True, fastmath=fastmath)(function))


@cache
def _warn_of_compilation() -> None:
    """Say once for each process that nothing is kept."""
    warnings.warn(
        "no folder for compiled code can be written, so every run compiles anew (some 20 s); "
        "NUMBA_CACHE_DIR names another folder",
        RuntimeWarning,
        stacklevel=4,
    )
