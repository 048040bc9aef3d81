"""
Run a script of another project where some of its imports are missing: ``stand_in.py NAME,NAME script.py ...``.

Kernels of GPUs are imported by searches that never call them. Modules of these names, and what lies below them, are
empty objects here. The old name ``numpy.infty`` is given back. This file imports nothing of the project.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
from types import ModuleType
from unittest.mock import MagicMock

import numpy


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of the given names and makes empty ones."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """A spec for the names that are absent."""
        ours = name.split(".")[0] in self.names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A module that has every attribute."""
        made: ModuleType = MagicMock(name=spec.name, __spec__=spec, __path__=[], __version__="3.0.0")
        made.__name__ = spec.name
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module is empty."""


def main() -> None:
    """Run the script."""
    absent, script, *words = sys.argv[1:]
    names = [] if absent == "-" else absent.split(",")
    if names:
        import torch.utils.flop_counter
        import transformers  # type: ignore[import-not-found, unused-ignore]  # of the peer's own environment

        assert transformers
        setattr(torch, "compile", lambda made=None, **_: made or (lambda inner: inner))  # noqa: B010 - a plain stand-in
    setattr(numpy, "infty", numpy.inf)  # noqa: B010 - numpy 2 has dropped the name
    sys.meta_path.append(Absent(names))
    sys.argv[:] = [script, *words]
    sys.path[:1] = ["."]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
