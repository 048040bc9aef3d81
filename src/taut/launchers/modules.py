"""
Settings that a Python file states: modules that ``taut export`` writes, recipes and configuration functions.

Nothing in a file is run. Three forms are read:

(1) dictionaries that are written out, under the names that ``taut export`` gives them; a file with any is read for
    these alone;
(2) assignments to a path, ``cfg.model.tensor_model_parallel_size = 4``;
(3) named arguments of calls, ``ParallelismConfig(tensor_parallel_degree=8)``; the section is the name that is called.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from taut.errors import DataError
from taut.launchers.paths import is_megatron
from taut.launchers.torchtitan import MODE, PARTS

SECTIONS = {"PARALLELISM": "parallelism", "TRAINING": "training"}
CHUNKS, SETTINGS = "CHUNKS", "SETTINGS"
DICTIONARIES = (*SECTIONS, CHUNKS, SETTINGS)
CONFIGS = {
    "ParallelismConfig": "parallelism",
    "Parallelism": "parallelism",
    "TrainingConfig": "training",
    "Training": "training",
    "ActivationCheckpointConfig": "activation_checkpoint",
    "ActivationCheckpoint": "activation_checkpoint",
    "CompileConfig": "compile",
}
"""torchtitan's classes, by the section that they state."""
WORDS = {"SelectiveAC.Config": "selective", "FullAC.Config": "full"}


def module_fields(text: str) -> dict[str, Any]:
    """
    Fields by path of a Python file.

    Raises ``DataError`` if it is no Python, a dictionary of ``taut export`` is not written out, or a name is given two
    values.
    """
    expected = "expected PARALLELISM and TRAINING as dictionaries, written out"
    try:
        tree = ast.parse(text)
        found = _written_out(tree)
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError, MemoryError):
        raise DataError(f"Python file: {expected}") from None
    if found:
        modes = (mode for words, mode in WORDS.items() if f"activation_checkpoint = {words}()" in text)
        return found if is_megatron(found) else found | {MODE: next(modes, "none")}
    for path, value in _assigned(tree):
        if path in found and found[path] != value:
            raise DataError(f"Python file: {path} is {found[path]} and {value}, expected one configuration in a file")
        found[path] = value
    return found


def _written_out(tree: ast.Module) -> dict[str, Any]:
    """Fields of the dictionaries that a module of ``taut export`` has, (1)."""
    found: dict[str, Any] = {}
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            name = line.targets[0].id
            values = ast.literal_eval(line.value) if name in DICTIONARIES else {}
            found |= _section(name, values)
    return found


def _section(name: str, values: Any) -> dict[str, Any]:
    """Fields of one dictionary (or of the list of chunks), by the name that it has in the module."""
    if name == CHUNKS:
        return {PARTS: [[f"layers.{layer}" for layer in range(first, end)] for first, end in values]}
    if name == SETTINGS:
        return dict(values.items())
    return {f"{SECTIONS.get(name)}.{field}": value for field, value in values.items()}


def _assigned(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Paths with their values, (2) and (3), wherever in the file they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            path = _path(node.targets[0]).partition(".")[2]
            if path.endswith("activation_checkpoint") and (mode := WORDS.get(_path(getattr(node.value, "func", None)))):
                yield MODE, mode
            yield from _literal(path, node.value)
        if isinstance(node, ast.Call):
            called = _path(node.func)
            name = called.removesuffix(".Config").rpartition(".")[2]
            section = CONFIGS.get(called.rpartition(".")[2]) or CONFIGS.get(name) or re.sub(r"\W", "", name)
            for given in node.keywords:
                if given.arg is not None:
                    yield from _literal(f"{section}.{given.arg}", given.value)
                if given.arg == "activation_checkpoint":
                    mode = WORDS.get(_path(getattr(given.value, "func", None)))
                    yield from [(MODE, mode)] if mode else []


def _literal(path: str, value: ast.expr) -> Iterator[tuple[str, Any]]:
    """A path with its value, where the value is written out."""
    try:
        yield path, ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return


def _path(node: Any) -> str:
    """The names of an attribute and of what it belongs to, with dots between."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names))
