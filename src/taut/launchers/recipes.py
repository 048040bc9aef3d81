"""
Settings that a Python file makes, read without running it: recipes of Megatron-Bridge and NeMo, torchtitan's functions.

A file is followed in the order in which Python would run it (``taut.launchers.follow``). It makes the configuration
that its own statements make, or else those of its public functions, or else the dictionaries at its top: one, or one
that the user names (``recipe.py:function``). A configuration is an object of a class or function of a framework, and
what is set on it.

What may have changed a configuration and is not followed is named, by line. So is a setting that speaks of memory or
time and is not known.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from taut.data.suggest import nearest
from taut.errors import DataError
from taut.launchers.follow import MOST_DEPTH, Frame, Function, Module, Raised, Reader, Returned, Thing
from taut.launchers.paths import is_megatron
from taut.launchers.settings import DECIDING, known
from taut.launchers.torchtitan import MODE, is_torchtitan

EXPECTED = "expected one configuration of Megatron-Bridge, NeMo or torchtitan"
CLASSES: dict[str, str] = known("torchtitan_classes")
"""torchtitan's classes, by the section that they state."""
MODES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
FORMATS = ("mixed_precision", "plugins", "precision")
"""Settings whose precision is the name of what makes them."""
PRICED = re.compile(rf"(^|\.)({'|'.join(known('priced_sections'))})$")
"""Sections that decide a price."""
UNPRICED = re.compile(rf"(^|\.)({'|'.join(known('unpriced_sections'))})\.")
"""Sections that decide none, whatever sets them."""


class Found(NamedTuple):
    """Fields by path, and sentences on what is not known."""

    fields: dict[str, Any]
    named: tuple[str, ...] = ()


def module_fields(text: str, function: str = "", folder: Path | None = None) -> Found:
    """Fields of a Python file, of one ``function`` if it is named; a ``DataError`` if it makes none or several."""
    try:
        tree = ast.parse(text)
        own = [line.name for line in tree.body if isinstance(line, ast.FunctionDef) and not line.name.startswith("_")]
        names = [line.name for line in tree.body if isinstance(line, ast.FunctionDef)]
        if function and function not in names:
            near = nearest(function, own)
            raise DataError(f"{function}: no function of the file, expected {near or ', '.join(own[:12]) or 'one'}")
        if function and not (found := _made(tree, folder, function)).fields:
            raise DataError(f"{function}() makes none that is known, {EXPECTED}")
        return found if function else _one_of(tree, folder, own)
    except DataError as error:
        raise DataError(f"Python file: {error}") from None
    except (SyntaxError, ValueError, RuntimeError, MemoryError):
        raise DataError(f"Python file: {EXPECTED}") from None


def _one_of(tree: ast.Module, folder: Path | None, own: list[str]) -> Found:
    """What a file's statements make, or else one of its public functions, or else a dictionary at its top."""
    if (found := _made(tree, folder, "")).fields:
        return found
    made: dict[str, Found] = {}
    refused: dict[str, str] = {}
    for name in own:
        try:
            made |= {name: found} if (found := _made(tree, folder, name)).fields else {}
        except DataError as error:
            refused[name] = str(error)
    if not made and not refused:
        made = {"": found} if (found := _made(tree, folder, "", dictionaries=True)).fields else {}
    if not made:
        raise DataError(next(iter(refused.values()), EXPECTED))
    if len({str(sorted(each.fields.items(), key=str)) for each in made.values()}) > 1:
        names = ", ".join(list(made)[:6]) + (", ..." if len(made) > 6 else "")
        raise DataError(f"makes {len(made)} configurations ({names}), expected one, or FILE.py:{next(iter(made))}")
    only = next(iter(made.values()))
    return only._replace(named=(*only.named, *(f"{name}() is not read: {why}" for name, why in refused.items())))


def _made(tree: ast.Module, folder: Path | None, function: str, *, dictionaries: bool = False) -> Found:
    """Fields of the configurations that a function returns, or else holds; "": the file's own statements."""
    reader = Reader()
    module = Module(reader, None, folder, "recipe" if function else "__main__")
    frame = Frame(module, module.names)
    value: Any = None
    try:
        frame.follow(tree.body)
        if function:
            entry = frame.names.get(function)
            if not isinstance(entry, Function):
                raise DataError(f"{function}: bound behind a condition, expected a function")
            reader.notes.clear()
            value, frame = frame.entered(entry)
    except Raised as raised:
        raise DataError(f"{raised.args[0]}: Python stops here") from None
    except Returned:
        raise DataError("returns outside a function") from None
    kinds = (Thing, dict) if dictionaries or isinstance(value, dict) else (Thing,)
    imported = {
        name.asname or name.name for line in ast.walk(tree) if isinstance(line, ast.ImportFrom) for name in line.names
    }
    several = (
        [value] if isinstance(value, kinds) else [each for name, each in frame.names.items() if name not in imported]
    )
    held = {id(each): each for each in several if isinstance(each, kinds)}
    return _found(list(held.values()), list(reader.notes), reader)


def _found(configurations: list[Any], notes: list[str], reader: Reader) -> Found:
    """Fields of configurations that are a launcher's, which do not contradict each other."""
    fields: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    changes = dict(reader.asked)
    for each in configurations:
        section = CLASSES.get(each.called, "") if isinstance(each, Thing) else ""
        for path, value in _flat(each, f"{section}." if section else "", changes, reader, ()):
            if isinstance(value, Thing):
                unknown[path] = value.text
            elif path in fields and fields[path] != value:
                raise DataError(f"{path} is {fields[path]} and {value}, {EXPECTED}")
            else:
                fields[path] = value
    if not (is_megatron(fields) or is_torchtitan(fields)):
        return Found({})
    deciding = {
        path: text
        for path, text in unknown.items()
        if path not in fields and not UNPRICED.search(path) and (DECIDING.search(path) or PRICED.search(path))
    }
    named = [*notes, *([f"what these may set is not read: {'; '.join(changes)}"] if changes else [])]
    named += [f"{path}: {text:.80}, which is not known, is not read" for path, text in deciding.items()]
    return Found(fields, tuple(dict.fromkeys(named)))


def _flat(
    value: Any, before: str, changes: dict[str, None], reader: Reader, over: tuple[int, ...]
) -> Iterator[tuple[str, Any]]:
    """Settings by path, Things where they are not known; ``changes``: what may set more; ``over``: what holds this."""
    reader.spend()
    if id(value) in over or len(over) > MOST_DEPTH:
        raise DataError(f"{before or 'a configuration'} holds itself, {EXPECTED}")
    if isinstance(value, Thing) and not UNPRICED.search(before):
        changes |= value.taints
    pairs: Mapping[Any, Any] = (
        value
        if isinstance(value, dict)
        else dict(enumerate(value))
        if isinstance(value, list | tuple)
        else _asked(value) | value.fields
    )
    for name, each in pairs.items():
        path = f"{before}{name}"
        if "Muon" in str(name) and before.startswith("optimizer"):
            yield "optimizer.name", name
        if name == "activation_checkpoint" and not (
            isinstance(each, Thing) and (each.called in CLASSES or each.fields)
        ):
            mode = (
                "none"
                if each is None
                else MODES.get(each.called)
                if isinstance(each, Thing) and each.is_class
                else None
            )
            yield MODE, each if mode is None else mode
        if isinstance(each, Thing):
            words = " ".join([each.called, *each.words])
            if name == "peft" or (name in FORMATS and re.search(r"fp\d|bf16", words)):
                yield "trainer.precision" if name == "plugins" else path, words.strip() or "adapters"
            elif each.text.startswith("torch.") and not each.called:
                yield path, each.text
            elif not (each.is_class or each.fields) or str(name).endswith(("_size", "_degree")):
                yield path, each
        structured = isinstance(each, Thing | dict) or (isinstance(each, list | tuple) and not reader.is_known(each))
        if structured and reader.is_open(each) and not isinstance(each, Thing):
            yield path, Thing("what may have been changed")
        elif structured:
            yield from _flat(each, f"{path}.", changes, reader, (*over, id(value)))
        elif not isinstance(each, Function | Module):
            yield path, each


def _asked(value: Thing) -> dict[Any, Any]:
    """Parts that were asked of an object and that something was set on."""
    return {name: part for name, part in value.parts.items() if part.fields or _asked(part)}
