"""
Python followed without being run: statements and expressions exactly as Python would, or not known, or refused by line.

(1) A value is Python's own (numbers, texts, lists, dictionaries, functions and files at hand), or a ``Thing``: an
    object whose code is not at hand. Of a Thing only that is known which the followed statements set on it.
(2) What is computed from a Thing is a Thing. What is set on a Thing that may be another object taints that object.
(3) A call whose code is not at hand may set anything on what it is given: Things are tainted with its place and words,
    lists and dictionaries are not known any more. A class that is not at hand makes a Thing of its named arguments.
(4) Statements behind a condition that is not known are not followed: names that they bind are not known any more, and
    what they change is tainted with their place and words. Those that raise alone make no configuration.

Nothing is kept between two readings.
"""

import ast
import builtins
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from taut.data.read import read_text
from taut.errors import DataError
from taut.launchers.settings import known

MOST_STEPS, MOST_DEPTH, MOST_BYTES, MOST_ITEMS, LARGEST = 400_000, 20, 2_000_000, 10_000, 2**62
"""Statements, values and elements; calls in one another; bytes of a file; elements of a value; the largest number."""
FRAMEWORKS, HARMLESS, REFUSED = (set(known(f"python_{what}")) for what in ("frameworks", "harmless", "refused"))
BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.BitOr: operator.or_, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several, ast.NotIn: lambda one, several: one not in several,
}  # fmt: skip
METHODS: dict[type, tuple[str, ...]] = {
    str: ("lower", "upper", "strip", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"),
    dict: ("get", "items", "keys", "values", "copy", "update", "setdefault", "pop"),
    list: ("append", "extend", "insert", "pop", "copy"),
}
CALLS: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "abs": abs, "min": min, "max": max, "sum": sum, "any": any,
    "all": all, "range": range, "sorted": sorted, "round": round,
}  # fmt: skip
SHALLOW: dict[str, Callable[..., Any]] = {
    "len": len, "list": list, "tuple": tuple, "dict": dict,
    "zip": lambda *each, strict=False: Once(zip(*each, strict=strict)),
    "enumerate": lambda *each, **k: Once(enumerate(*each, **k)),
}  # fmt: skip
"""Functions of Python that ask nothing of elements."""
WHOLE = ("list", "tuple", "dict", "sum", "min", "max", "sorted")
"""Functions that go through all of a generator before anything else happens."""
ASKING = {*SHALLOW, *CALLS, *METHODS[str], "isinstance", "hasattr", "getattr", "get", "items", "keys", "values"}
"""Functions and methods that change nothing."""
CLASS = re.compile(r"(.*\.)?_*[A-Z]\w*[a-z]\w*")
"""Words of a class that is not at hand."""
ABSENT = object()
ERRORS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError)


class Thing:
    """
    An object whose code is not at hand.

    ``text``: what stands for it; ``called``: the class or function that made it; ``is_class``: whether a class of a
    framework made it, whose other settings are the framework's own; ``fields``: what was set on it; ``parts``: what was
    asked of it; ``taints``: what may have set more; ``may_be``: objects that it may be; ``owner``: the one that it was
    asked of, whose method it may be.
    """

    def __init__(self, text: str, may_be: Iterable[Any] = (), called: str = "", *, is_class: bool = False) -> None:
        self.text, self.called, self.is_class = text[:200], called, is_class
        self.fields: dict[Any, Any] = {}
        self.parts: dict[Any, Thing] = {}
        self.taints: dict[str, None] = {}
        self.words: list[str] = []
        self.owner: Thing | None = None
        self.may_be = [each for each in may_be if isinstance(each, Thing | list | dict | tuple | Module)]

    def part(self, name: Any) -> Any:
        """What is set under a name, or a Thing for what is not known there."""
        if name in self.fields:
            return self.fields[name]
        if name not in self.parts:
            self.parts[name] = Thing(f"{self.text}.{name}", self.may_be)
            self.parts[name].owner = self if isinstance(name, str) else None
        return self.parts[name]


class Once(tuple[Any, ...]):
    """What Python lets one go through once: not known where it is kept."""


class Function(NamedTuple):
    """A function at hand, the frame around it, its defaults, and what decorates it."""

    node: ast.FunctionDef
    frame: "Frame"
    defaults: dict[str, Any]
    decorated: str


class Module:
    """
    A file at hand, with its names; ``unseen``: the file not at hand that names may come from that it does not bind.

    A framework's file is followed when a name of it is asked for, any other one where it is imported.
    """

    def __init__(self, reader: "Reader", path: Path | None, folder: Path | None, origin: str) -> None:
        self.reader, self.path, self.folder, self.origin, self.unseen = reader, path, folder, origin, ""
        self.names: dict[str, Any] = {"__name__": origin}
        self.waits = path is not None

    def name(self, name: str) -> Any:
        """The value of a name, a Thing if the file has none."""
        if self.waits and self.path is not None:
            self.waits = False
            try:
                Frame(self, self.names).follow(_parsed(self.path, self.path.stat().st_mtime_ns).body)
            except (Refused, Raised):
                self.reader.taint(self, self.origin)
        value = self.names.get(name, ABSENT)
        if isinstance(value, Pending):
            value = self.names[name] = value.module.name(value.name)
        return Thing(f"{self.origin}.{name}") if value is ABSENT else value


@lru_cache(maxsize=256)
def _parsed(path: Path, _changed: int) -> ast.Module:
    return ast.parse(read_text(path, "a file that a recipe imports from", MOST_BYTES))


class Pending(NamedTuple):
    """A name of a file that is not followed yet."""

    module: Module
    name: str


class Returned(Exception):
    """The value that a function returns."""


class Raised(Exception):
    """A statement that stops Python."""


class Refused(DataError):
    """Code that is not followed: a file that is refused, or a call whose code counts as not at hand."""


class Unsure(Refused):
    """A loop whose passes are not known any more."""


class Broken(Exception):
    """``break``, or ``continue`` where that is its argument."""


class Reader:
    """What a reading spent, its files, what is not known any more, and taints of what something was ``asked`` of."""

    def __init__(self) -> None:
        self.left = MOST_STEPS
        self.files: dict[Path, Module] = {}
        self.hidden: dict[int, Any] = {}
        self.notes: dict[str, None] = {}
        self.asked: dict[str, None] = {}

    def spend(self, steps: int = 1) -> None:
        """Count steps; a ``DataError`` when none are left."""
        self.left -= steps
        if self.left < 0:
            raise DataError(f"more than {MOST_STEPS} steps, expected a configuration")

    def ask(self, value: Any) -> None:
        """Keep what may have changed an object that something is read of, but for the class that made it."""
        made = value.text.partition("\n")[0][:60] if isinstance(value, Thing) and value.called[:1].isupper() else None
        for label in value.taints if isinstance(value, Thing) else ():
            if made is None or not label.endswith(made):
                self.asked[label] = None

    def is_open(self, value: Any) -> bool:
        """Whether a value itself is not known, whatever its elements are."""
        return isinstance(value, Thing | Function | Module) or id(value) in self.hidden

    def is_known(self, value: Any, seen: set[int] | None = None) -> bool:
        """Whether a value and its elements are Python's own and known."""
        self.spend()
        if not isinstance(value, list | tuple | dict) or self.is_open(value):
            return not self.is_open(value)
        seen = set() if seen is None else seen
        new = [each for each in (*value, *(value.values() if isinstance(value, dict) else ())) if id(each) not in seen]
        seen |= {id(each) for each in new}
        return all(self.is_known(each, seen) for each in new)

    def taint(self, value: Any, label: str, seen: set[int] | None = None) -> None:
        """Take what an object and its parts hold as no longer known, as what ``label`` says may have changed it."""
        seen = set() if seen is None else seen
        if id(value) in seen or isinstance(value, str | int | float | Pending | None):
            return
        seen.add(id(value))
        self.spend()
        inner: Iterable[Any] = ()
        if isinstance(value, Thing):
            value.taints[label] = None
            inner = [*value.fields.values(), *value.parts.values(), *value.may_be, value.owner]
        elif isinstance(value, Function):
            inner = value.frame.loaded(value.node)
            value.frame.forget(value.node)
        elif isinstance(value, Module):
            inner = [each for each in value.names.values() if not isinstance(each, Function | Module)]
            value.names |= {name: Thing(f"{value.origin}.{name}", [each]) for name, each in value.names.items()}
        elif isinstance(value, list | dict | tuple):
            self.hidden[id(value)] = value
            inner = value.values() if isinstance(value, dict) else value
        for each in inner:
            self.taint(each, label, seen)

    def module(self, folder: Path | None, level: int, name: str, package: str = "") -> Module | None:
        """The file of an import after its statements, if it lies beside the one that imports or above."""
        if folder is None:
            return None
        above = [folder.absolute(), *folder.absolute().parents]
        parts = name.split(".") if name else ["__init__"]
        tails = (Path(*parts).with_suffix(".py"), Path(*parts, "__init__.py"))
        folders = above[level - 1 : level] if level else above[:12]
        path = next((folder / tail for folder in folders for tail in tails if (folder / tail).is_file()), None)
        if path is None:
            return None
        if path not in self.files:
            self.files[path] = Module(self, path, path.parent, f"{package}{name}")
            if _first(self.files[path].origin) not in FRAMEWORKS:
                self.files[path].name("")
        return self.files[path]


class Frame:
    """Names of a function or of a file, and how its statements are followed."""

    def __init__(self, module: Module, names: dict[str, Any], outer: "Frame | None" = None, depth: int = 0) -> None:
        self.module, self.names, self.outer, self.depth = module, names, outer, depth
        self.reader = module.reader

    def place(self, node: ast.AST) -> str:
        """Line, after the file unless it is the one that is read, and words."""
        file = f"{self.module.path.name} " if self.module.path is not None else ""
        return f"{file}line {getattr(node, 'lineno', 0)} {ast.unparse(node).splitlines()[0]:.60}"

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Refuse the file, by line."""
        raise Refused(f"{self.place(node)}: {what}")

    def unknown(self, node: ast.AST, *operands: Any) -> Thing:
        """What an expression is that is not known, and may be one of its operands."""
        return Thing(ast.unparse(node), operands)

    def loaded(self, node: ast.AST) -> list[Any]:
        """Values of the names that stand in statements, functions included."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        return [value for name in sorted(names) if (value := self.lookup(name)) is not ABSENT]

    def lookup(self, name: str) -> Any:
        """The value of a name, ``ABSENT`` if it has none."""
        frame: Frame | None = self
        while frame is not None and name not in frame.names:
            frame = frame.outer
        value = ABSENT if frame is None else frame.names[name]
        if frame is not None and isinstance(value, Pending):
            value = frame.names[name] = value.module.name(value.name)
        return value

    def forget(self, node: ast.AST) -> None:
        """Take names as no longer known that a function binds outside itself."""
        names = {name for each in ast.walk(node) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
        frame: Frame | None = self
        while names and frame is not None:
            frame.names |= {name: Thing(name, [frame.names[name]]) for name in names & frame.names.keys()}
            frame = frame.outer

    def follow(self, body: Sequence[ast.stmt]) -> None:
        """Follow statements in their order."""
        for line in body:
            self.reader.spend()
            self._statement(line)

    def _statement(self, line: ast.stmt) -> None:
        match line:
            case ast.Pass():
                pass
            case ast.AnnAssign(value=None, annotation=annotation):
                self._annotated(annotation)
            case ast.Expr(value=value):
                self.value(value)
            case ast.Assign(targets=targets, value=given):
                value = self.value(given)
                for target in targets:
                    self.bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as given, annotation=annotation):
                self.bind(target, self.value(given))
                self._annotated(annotation)
            case ast.AugAssign(target=target, op=op, value=given) if not _calls(target):
                old, new = self.value(target), self.value(given)
                if isinstance(old, list | dict):  # these change in place
                    method = {(list, ast.Add): "extend", (dict, ast.BitOr): "update"}.get((type(old), type(op)), "")
                    self._method(line, old, method, [new], {})
                else:
                    old = self._binary(line, op, old, new)
                self.bind(target, old)
            case ast.If(test=test):
                self._branch(line, self.truth(self.value(test)))
            case ast.For(orelse=[]) | ast.While(orelse=[]):
                try:
                    self._loop(line)
                except Unsure:
                    self.doubt(line)
            case ast.With() if not any("suppress" in ast.unparse(each.context_expr) for each in line.items):
                for item in line.items:
                    made = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, self.unknown(item.context_expr, made))
                self.follow(line.body)
            case ast.Try(handlers=[]):
                try:
                    self.follow(line.body)
                finally:
                    self.follow(line.finalbody)
            case ast.Try() | ast.With() | ast.Match():
                self.doubt(line)
            case ast.FunctionDef():
                self._define(line)
            case ast.ClassDef() | ast.AsyncFunctionDef():
                self._open(line)
                origin = next((part for part in self.module.origin.split(".") if part in FRAMEWORKS), "this file")
                self.names[line.name] = Thing(f"{origin}.{line.name}", self.loaded(line))
            case ast.Import():
                for alias in line.names:
                    name = alias.name if alias.asname else _first(alias.name)
                    found = self.reader.module(self.module.folder, 0, name)
                    self.names[alias.asname or name] = found or Thing(name)
            case ast.ImportFrom():
                self._import(line)
            case ast.Return(value=given):
                raise Returned(self.value(given) if given is not None else None)
            case ast.Break() | ast.Continue():
                raise Broken(isinstance(line, ast.Continue))
            case ast.Raise():
                raise Raised(self.place(line))
            case ast.Assert(test=test):
                if self.truth(self.value(test)) is False:
                    raise Raised(self.place(line))
            case _:
                self.refuse(line, f"{type(line).__name__} is not followed")

    def _loop(self, line: ast.For | ast.While) -> None:
        """Follow the passes of a loop while it is known that they come."""
        if isinstance(line, ast.For):
            several = self.value(line.iter)
            if not self._has_elements(line.iter, several):
                return self.doubt(line)
            for each in several:
                self.reader.spend()
                self.bind(line.target, each)
                if not self._one_pass(line.body):
                    break
            return None
        while holds := self.truth(self.value(line.test)):
            if not self._one_pass(line.body):
                break
        return self.doubt(line) if holds is None else None

    def _one_pass(self, body: Sequence[ast.stmt]) -> bool:
        """Follow one pass of a loop; whether another may come."""
        try:
            self.follow(body)
        except Broken as broken:
            return bool(broken.args[0])
        return True

    def _branch(self, line: ast.If, holds: bool | None) -> None:
        """Follow the branch of a condition, (4); one that only raises makes no configuration."""
        if holds is None:
            ends = [bool(body) and isinstance(body[-1], ast.Raise) for body in (line.body, line.orelse)]
            if ends == [False, False]:
                return self.doubt(line)
            holds = not ends[0]
        return self.follow(line.body if holds else line.orelse)

    def doubt(self, node: ast.AST) -> None:
        """Take as no longer known what statements that may not run bind and change, (4)."""
        inside = list(ast.walk(node))
        functions = [one for each in inside if isinstance(each, ast.FunctionDef) for one in ast.walk(each)]
        loops = any(isinstance(each, ast.For | ast.While) for each in inside)
        for each in inside:
            if isinstance(each, ast.Break | ast.Continue) and not loops:
                raise Unsure(f"{self.place(each)}: stands behind a condition that is not known")
            if isinstance(each, ast.Return | ast.Delete | ast.Global) and each not in functions:
                self.refuse(each, "stands behind a condition that is not known")
        held = self.loaded(node)
        for each in inside:
            if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):  # lists change in place
                self._taint_all(each, [old for old in [self.lookup(each.target.id)] if not isinstance(old, tuple)])
        for each in inside:
            bound = [each.id] if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) else []
            if isinstance(each, ast.Import | ast.ImportFrom):
                bound = [name for alias in each.names if self.lookup(name := alias.asname or alias.name) is not ABSENT]
                self._statement(each)
            elif (
                isinstance(each, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar)
                and each.name
            ):
                bound = [each.name]
            for name in bound:
                self.names[name] = Thing(f"{name}, behind a condition", [self.lookup(name), *held])
        stored = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        for each in inside:
            if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign):
                self._doubt_targets(each, stored, held)
            if isinstance(each, ast.Call) and not _is_harmless(self._words(each.func)):
                self._taint_all(each, self.loaded(each))

    def _doubt_targets(
        self, line: ast.Assign | ast.AugAssign | ast.AnnAssign, stored: set[str], held: list[Any]
    ) -> None:
        """Take what an assignment that may not run sets as no longer known."""
        for one in line.targets if isinstance(line, ast.Assign) else [line.target]:
            plain = not any(isinstance(part, ast.Call) or getattr(part, "id", "") in stored for part in ast.walk(one))
            if isinstance(one, ast.Attribute) and plain:
                self.bind(one, Thing(f"{ast.unparse(line.value or one)}, behind a condition", held))
            elif not isinstance(one, ast.Name):
                self._taint_all(line, self.loaded(one))

    def _taint_all(self, node: ast.AST, values: Iterable[Any]) -> None:
        for each in values:
            self.reader.taint(each, f"{self.place(node)}, behind a condition")

    def _words(self, function: ast.expr) -> str:
        """The words that stand for a function, from its library on."""
        node = function
        while isinstance(node, ast.Attribute | ast.Call):
            node = node.value if isinstance(node, ast.Attribute) else node.func
        value = self.lookup(node.id) if isinstance(node, ast.Name) else None
        if value is ABSENT and isinstance(node, ast.Name):
            return ast.unparse(function)
        origin = value.frame.module.origin if isinstance(value, Function) else getattr(value, "origin", "")
        return (value.text if isinstance(value, Thing) else origin) + ("" if function is node else ".")

    def _open(self, line: ast.ClassDef | ast.AsyncFunctionDef | ast.FunctionDef) -> None:
        """Follow what happens where something is defined that is not followed later: a class's body, decorators."""
        if any(isinstance(each, ast.Global | ast.Nonlocal) for each in ast.walk(line)):
            self.refuse(line, "names that it binds outside itself are not followed")
        if any(getattr(each, "name", "") == "__init_subclass__" for each in ast.walk(line)):
            self.refuse(line, "what it does to classes below it is not followed")
        self._decorators(line)
        if isinstance(line, ast.ClassDef):
            for each in line.bases:
                self.value(each)
            for given in line.keywords:  # a metaclass runs here
                self.reader.taint(self.value(given.value), self.place(line))
            try:
                Frame(self.module, {}, self, self.depth).follow(line.body)
            except Refused:
                self.doubt(line)

    def _annotated(self, *annotations: ast.expr | None) -> None:
        """Take what calls in annotations change as no longer known: Python's version says which of them run."""
        for each in annotations:
            if each is not None and _calls(each):
                self.doubt(each)

    def _decorators(self, line: ast.ClassDef | ast.AsyncFunctionDef | ast.FunctionDef) -> list[ast.expr]:
        """Decorators that are not a framework's; those at hand are called, and not followed."""
        others = [each for each in line.decorator_list if _first(self._words(each)) not in FRAMEWORKS | {"run"}]
        for each in others:
            if isinstance(made := self.value(each), Function):
                self.reader.taint(made, self.place(each))
        return others

    def _define(self, line: ast.FunctionDef) -> None:
        given = line.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        self._annotated(line.returns, *(each.annotation for each in every))
        names = [each.arg for each in [*given.posonlyargs, *given.args]]
        defaults = {name: self.value(each) for name, each in zip(names[::-1], given.defaults[::-1], strict=False)}
        keyed = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        defaults |= {each.arg: self.value(value) for each, value in keyed if value is not None}
        others = self._decorators(line)
        decorated = ast.unparse(others[0]) if others else ""
        made = Function(line, self, defaults, decorated)
        generates = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(line))
        if generates:
            self._open(line)
        self.names[line.name] = Thing(line.name, self.loaded(line)) if generates else made

    def _import(self, line: ast.ImportFrom) -> None:
        package = (
            self.module.origin.rsplit(".", line.level)[0] + "."
            if line.level and "." in self.module.origin
            else "." * line.level
        )
        found = self.reader.module(self.module.folder, line.level, line.module or "", package)
        for each in line.names:
            below = ".".join(filter(None, (line.module, each.name)))
            if each.name == "*":
                self._import_all(line, found)
            elif found is not None and (found.waits or each.name in found.names):
                self.names[each.asname or each.name] = (
                    Pending(found, each.name) if found.waits else found.names[each.name]
                )
            else:
                value = self.reader.module(self.module.folder, line.level, below, package)
                self.names[each.asname or each.name] = value or Thing(package + below)

    def _import_all(self, line: ast.ImportFrom, found: Module | None) -> None:
        """Names that a file shows to all; one that is not at hand may bind any name."""
        if found is not None:
            found.name("")
        if found is not None and "__all__" not in found.names:
            self.names |= {name: value for name, value in found.names.items() if not name.startswith("_")}
        else:
            self.names |= {name: Thing(name, [value]) for name, value in self.names.items() if name != "__name__"}
            self.module.unseen = f"{line.module}."

    def bind(self, target: ast.expr, value: Any) -> None:
        """Set a target as an assignment does."""
        match target:
            case ast.Name(id=name):
                self.names[name] = self.unknown(target) if isinstance(value, Once) else value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if not any(
                isinstance(each, ast.Starred) for each in parts
            ):
                known_parts = self._has_elements(target, value)
                several = list(value) if known_parts else [_part(value, str(place)) for place in range(len(parts))]
                if len(several) != len(parts):
                    self.refuse(target, f"{len(several)} values for {len(parts)} names")
                for each, part in zip(parts, several, strict=True):
                    self.bind(each, part)
            case ast.Attribute(value=holder, attr=name):
                self._set(target, self.value(holder), name, value)
            case ast.Subscript(value=holder, slice=key):
                self._set(target, self.value(holder), self.value(key), value)
            case _:
                self.refuse(target, "a target of this kind is not followed")

    def _set(self, node: ast.AST, holder: Any, key: Any, value: Any) -> None:
        """Set an attribute or an element."""
        element = isinstance(node, ast.Subscript)
        value = self.unknown(node) if isinstance(value, Once) else value
        if isinstance(holder, Thing):
            if holder.text.startswith("sys.modules") or (not holder.called and CLASS.fullmatch(holder.text)):
                self.refuse(node, "what is set on a class or module is not followed")
            plain = isinstance(key, str) and not key.startswith("__")
            for each in holder.may_be if plain else [holder]:
                self.reader.taint(each, self.place(node))
            if plain:
                holder.fields[key] = value
        elif isinstance(holder, Module) and not holder.waits and not element:
            holder.names[key] = value
        elif element and isinstance(holder, list | dict):
            if self.reader.is_open(holder) or not self.reader.is_known(key):
                return self.reader.taint(holder, self.place(node))
            self._tried(node, operator.setitem, holder, key, value)
        else:
            self.refuse(node, "what is set here is not followed")
        return None

    def _has_elements(self, node: ast.AST, value: Any) -> bool:
        """Whether the elements of a value are known in number and order."""
        if not self.reader.is_open(value) and not isinstance(value, list | tuple | dict | str | range):
            self.refuse(node, "Python goes through no value of this kind")
        return not self.reader.is_open(value)

    def truth(self, value: Any) -> bool | None:
        """Whether a value holds as a condition, None where it is not known."""
        if isinstance(value, Thing):
            return value.is_class or None
        return None if self.reader.is_open(value) else bool(value)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        self.reader.spend()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                found = self.lookup(name)
                if found is ABSENT:
                    found = Thing(name if hasattr(builtins, name) else self.module.unseen + name)
                    self.module.names |= {} if hasattr(builtins, name) else {name: found}
                return found
            case ast.Attribute(value=holder, attr=name):
                return self._attribute(node, self.value(holder), name)
            case ast.Subscript(value=given, slice=sliced) if not isinstance(sliced, ast.Slice):
                holder, key = self.value(given), self.value(sliced)
                if isinstance(holder, Thing) and isinstance(key, str):
                    return self._attribute(node, holder, key)
                if self.reader.is_open(holder) or not self.reader.is_known(key):
                    return self.unknown(node, holder)
                return self._tried(node, operator.getitem, holder, key)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) if not any(
                isinstance(each, ast.Starred) for each in parts
            ):
                several = [self.value(each) for each in parts]
                return several if isinstance(node, ast.List) else tuple(several)
            case ast.Dict():
                return self._dictionary(node)
            case ast.NamedExpr(target=target):
                self.bind(target, value := self.value(node.value))
                return value
            case ast.IfExp():
                holds = self.truth(self.value(node.test))
                if holds is not None:
                    return self.value(node.body if holds else node.orelse)
            case ast.BoolOp(op=op, values=parts):
                return self._either(node, isinstance(op, ast.Or), parts)
            case ast.JoinedStr(values=parts):
                parts = [
                    each.value
                    if isinstance(each, ast.FormattedValue) and each.conversion == -1 and not each.format_spec
                    else each
                    for each in parts
                ]
                if not any(isinstance(each, ast.FormattedValue) for each in parts):
                    texts = [self.value(each) for each in parts]
                    return (
                        self._sized(node, "".join(map(str, texts)))
                        if self.reader.is_known(texts)
                        else self.unknown(node)
                    )
            case ast.UnaryOp(op=op, operand=operand):
                value = self.value(operand)
                if isinstance(op, ast.Not) and (holds := self.truth(value)) is not None:
                    return not holds
                if isinstance(op, ast.USub) and isinstance(value, int | float):
                    return -value
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Set(elts=parts)]):
                return self._binary(node, op, self.value(left), [self.value(each) for each in parts])
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._binary(node, op, self.value(left), self.value(right))
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(node, op, self.value(left), self.value(right))
            case ast.ListComp() | ast.DictComp():
                return self._comprehended(node)
            case ast.Call():
                return self._call(node)
        self.doubt(node)
        return self.unknown(node, *self.loaded(node))

    def _attribute(self, node: ast.AST, holder: Any, name: str) -> Any:
        if isinstance(holder, Module):
            return holder.name(name)
        if not isinstance(holder, Thing) or name.startswith("__"):
            return self.unknown(node, holder)
        self.reader.ask(holder if name in holder.fields else None)
        return holder.part(name)

    def _dictionary(self, node: ast.Dict) -> Any:
        """A dictionary; a Thing with the settings behind one that is not known."""
        found: dict[Any, Any] = {}
        rest: list[Any] = []
        for key, each in zip(node.keys, node.values, strict=True):
            name = self.value(key) if key is not None else None
            value = self.value(each)
            if key is not None and isinstance(name, str | int | float | None):
                found[name] = value
            elif key is None and isinstance(value, dict) and not self.reader.is_open(value):
                found |= value
            else:
                found, rest = {}, [*rest, value, *found.values()]
        if not rest:
            return found
        thing = self.unknown(node, *rest)
        thing.fields |= {str(name): value for name, value in found.items()}
        return thing

    def _either(self, node: ast.BoolOp, decides: bool, parts: Sequence[ast.expr]) -> Any:
        """The first value of several that decides, or the last."""
        value = self.value(parts[0])
        if len(parts) == 1 or (holds := self.truth(value)) is decides:
            return value
        if holds is not None:
            return self._either(node, decides, parts[1:])
        for each in parts[1:]:
            self.doubt(each)
        return self.unknown(node, value, *self.loaded(node))

    def _binary(self, node: ast.AST, op: ast.AST, left: Any, right: Any) -> Any:
        kind, reader = type(op), self.reader
        if kind in (ast.Is, ast.IsNot):
            single = any(each is None or isinstance(each, bool) for each in (left, right))
            opaque = any(isinstance(each, Thing) and not each.is_class for each in (left, right))
            return (left is right) is (kind is ast.Is) if single and not opaque else self.unknown(node)
        joins = kind is ast.Add and isinstance(left, list | tuple)
        asked = (
            (reader.is_open(left) or reader.is_open(right))
            if joins
            else not (reader.is_known(left) and reader.is_known(right))
        )
        if kind not in BINARY or asked or (kind is ast.Mod and isinstance(left, str)):
            return self.unknown(node, left, right)
        sizes = [
            each if isinstance(each, int) else len(each) if hasattr(each, "__len__") else 1 for each in (left, right)
        ]
        if kind is ast.Mult and (left, right) != tuple(sizes) and sizes[0] * sizes[1] > MOST_ITEMS:
            self.refuse(node, f"more than {MOST_ITEMS} elements")
        return self._tried(node, BINARY[kind], left, right)

    def _tried(self, node: ast.AST, made: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """What Python's own function makes; refused where Python raises."""
        try:
            found = made(*values, **named)
        except ERRORS as error:
            self.refuse(node, f"Python raises {type(error).__name__}")
        return self._sized(node, found)

    def _sized(self, node: ast.AST, value: Any) -> Any:
        """A value that is not too large."""
        size = (
            abs(value) / LARGEST
            if isinstance(value, int)
            else len(value) / MOST_ITEMS
            if hasattr(value, "__len__")
            else 0
        )
        if size > 1:
            self.refuse(node, f"more than {MOST_ITEMS} elements, or a number above {LARGEST}")
        self.reader.spend(int(size * 100))
        return value

    def _comprehended(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> Any:
        """Elements of a comprehension over what is known; names of its own."""
        if any(isinstance(each, ast.NamedExpr) for each in ast.walk(node)):
            self.refuse(node, "a name that is bound in it is not followed")
        inner = Frame(self.module, {}, self, self.depth)
        found: list[Any] = []

        def over(generators: Sequence[ast.comprehension]) -> bool:
            if not generators:
                if isinstance(node, ast.DictComp):
                    found.append((inner.value(node.key), inner.value(node.value)))
                else:
                    found.append(inner.value(node.elt))
                return True
            several = inner.value(generators[0].iter)
            if not self._has_elements(node, several):
                return False
            for each in several:
                self.reader.spend()
                inner.bind(generators[0].target, each)
                tests = [inner.truth(inner.value(test)) for test in generators[0].ifs]
                if None in tests or (all(tests) and not over(generators[1:])):
                    return False
            return True

        if not over(node.generators):
            self.doubt(node)
            return self.unknown(node, *self.loaded(node))
        if isinstance(node, ast.DictComp):
            return (
                self._tried(node, dict, found)
                if self.reader.is_known([key for key, _ in found])
                else self.unknown(node, found)
            )
        return self._sized(node, found if isinstance(node, ast.ListComp) else Once(found))

    def _call(self, node: ast.Call) -> Any:
        """What a call makes, (3)."""
        receiver, name = None, ""
        if isinstance(node.func, ast.Attribute):
            receiver, name = self.value(node.func.value), node.func.attr
            function = self._attribute(node.func, receiver, name)
        else:
            function = self.value(node.func)
        positional: list[Any] = []
        rest: list[Any] = []
        named: dict[str, Any] = {}
        for each in node.args:
            starred = isinstance(each, ast.Starred)
            inner = each.value if isinstance(each, ast.Starred) else each
            if isinstance(inner, ast.GeneratorExp) and (_first(ast.unparse(node)) in WHOLE or not _changes(inner)):
                value = self._comprehended(inner)
            else:
                value = self.value(inner)
            if starred and (rest or not self._has_elements(each, value)):
                rest.append(value)
            else:
                positional += value if starred else [value]
        for given in node.keywords:
            value = self.value(given.value)
            several = isinstance(value, dict) and not self.reader.is_open(value)
            named |= {given.arg: value} if given.arg is not None else value if several else {}
            if given.arg is None and not several:
                rest.append(value)
                named |= value.fields if isinstance(value, Thing) else {}
                self.reader.ask(value)
        if isinstance(function, Function) and not rest:
            return self._call_at_hand(node, function, positional, named)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(function, Thing) and function.text == called and hasattr(builtins, called):
            return self._built_in(node, called, [*positional, *rest], named)
        if receiver is not None and type(receiver) in METHODS:
            return self._method(node, receiver, name, [*positional, *rest], named)
        return self._unread(node, function, receiver, [*positional, *rest], named)

    def _bound(self, node: ast.AST, function: Function, positional: Sequence[Any], named: Mapping[str, Any]) -> "Frame":
        """The frame of a call, its arguments bound as Python binds them."""
        given, inner = function.node.args, function.frame
        if self.depth >= MOST_DEPTH:
            raise DataError(f"{self.place(node)}: more than {MOST_DEPTH} calls in one another")
        places = [each.arg for each in [*given.posonlyargs, *given.args]]
        every = [*places, *(each.arg for each in given.kwonlyargs)]
        bound = dict(zip(places, positional, strict=False))
        names = function.defaults | bound | {name: value for name, value in named.items() if name in every}
        extra = {name: value for name, value in named.items() if name not in every}
        more = tuple(positional[len(places) :])
        wrong = set(every) - set(names) or set(named) & set(bound)
        if wrong or (more and given.vararg is None) or (extra and given.kwarg is None):
            self.refuse(node, f"the arguments do not suit {function.node.name}()")
        names |= {given.vararg.arg: more} if given.vararg is not None else {}
        names |= {given.kwarg.arg: extra} if given.kwarg is not None else {}
        if function.decorated:
            self.reader.notes[f"line {function.node.lineno}: what @{function.decorated:.40} changes is not read"] = None
        kept = {name: Thing(name) if isinstance(value, Once) else value for name, value in names.items()}
        return Frame(inner.module, kept, inner, self.depth + 1)

    def returned(self, body: Sequence[ast.stmt]) -> Any:
        """What the statements of a function return."""
        try:
            self.follow(body)
        except Returned as returned:
            return returned.args[0]
        return None

    def entered(self, function: Function) -> "tuple[Any, Frame]":
        """What a function returns, and its frame; arguments without a default are not known."""
        given = function.node.args
        open_names = [
            each.arg
            for each in [*given.posonlyargs, *given.args, *given.kwonlyargs]
            if each.arg not in function.defaults
        ]
        frame = self._bound(function.node, function, [], {name: Thing(name) for name in open_names})
        return frame.returned(function.node.body), frame

    def _call_at_hand(self, node: ast.AST, function: Function, positional: list[Any], named: Mapping[str, Any]) -> Any:
        body = [
            each
            for each in function.node.body
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
        if len(body) == 1 and isinstance(body[0], ast.Raise):  # left to its user
            return self._unread(node, Thing(function.node.name), None, positional, named)
        frame = self._bound(node, function, positional, named)
        try:
            return frame.returned(body)
        except Refused as why:
            label = f"{self.place(node)} ({why})"
            for each in [*positional, *named.values(), function]:
                self.reader.taint(each, label)
            made = self.unknown(node, *positional, *named.values(), *function.frame.loaded(function.node))
            made.taints[label] = None
            return made

    def _built_in(self, node: ast.Call, name: str, positional: list[Any], named: Mapping[str, Any]) -> Any:
        values = [*positional, *named.values()]
        if name == "setattr" and len(values) == 3:
            return self._set(node, *values)
        if name == "getattr" and len(values) in (2, 3) and isinstance(values[1], str):
            found = self._attribute(node, values[0], values[1])
            sure = len(values) == 2 or not isinstance(values[0], Thing) or values[1] in values[0].fields
            return found if sure else self.unknown(node, found, values[2])
        if name in REFUSED:
            self.refuse(node, f"{name}() is not followed")
        if name in SHALLOW and not any(self.reader.is_open(each) for each in values):
            return self._tried(node, SHALLOW[name], *positional, **named)
        if name in CALLS and self.reader.is_known(values):
            return self._tried(node, CALLS[name], *positional, **named)
        if name == "setattr" or "key" in named or any(isinstance(each, Function) for each in values):
            self.reader.taint(values, self.place(node))
        return self.unknown(node, *values)

    def _method(self, node: ast.AST, receiver: Any, name: str, positional: list[Any], named: Mapping[str, Any]) -> Any:
        """A method of a text, a list or a dictionary."""
        reader, values = self.reader, [*positional, *named.values()]
        asked = (
            values
            if isinstance(receiver, str)
            else positional[:1]
            if name in ("get", "setdefault", "pop", "insert")
            else []
        )
        opened = any(reader.is_open(each) for each in positional) and name in ("extend", "update")
        if reader.is_open(receiver) or name not in METHODS[type(receiver)] or opened or not reader.is_known(asked):
            if not isinstance(receiver, str):
                reader.taint(receiver, self.place(node))
            return self.unknown(node, receiver, *values)
        made = self._tried(node, getattr(receiver, name), *positional, **named)
        self._sized(node, receiver)
        return Once(made) if name in ("items", "keys", "values") else made

    def _unread(
        self, node: ast.AST, function: Any, receiver: Any, positional: list[Any], named: Mapping[str, Any]
    ) -> Any:
        """What a call of code that is not at hand makes, and what it may have set."""
        text = function.text if isinstance(function, Thing) else ""
        root, last = _first(text), text.rpartition(".")[2]
        first = positional[0] if positional else None
        if last in ("Config", "Partial") and isinstance(first, Thing | Function):
            origin = first.text if isinstance(first, Thing) else f"{first.frame.module.origin}.{first.node.name}"
            known_class = _first(origin) in FRAMEWORKS or "." not in origin
            return self._made(node, origin.rpartition(".")[2], positional[1:], named, is_class=known_class)
        if last == "Config":
            last = text.split(".")[-2] if "." in text else last
        if last == "cast" and root in ("typing", "cast") and len(positional) == 2:
            return positional[1]
        if (
            last in ("deepcopy", "replace")
            and root in ("copy", "dataclasses", last)
            and isinstance(first, Thing | dict | list)
        ):
            return self._copied(first, named, {} if last == "deepcopy" else None)
        is_class = last.lstrip("_")[:1].isupper() and (root in FRAMEWORKS or root == text.removesuffix(".Config"))
        made = self._made(node, last, positional, named, is_class=is_class)
        harmless = _is_harmless(text)
        if not is_class and (not harmless or any(isinstance(each, Function) for each in positional)):
            for each in [*positional, *named.values(), receiver, function]:
                self.reader.taint(each, self.place(node))
            made.may_be = [each for each in [*positional, *named.values()] if isinstance(each, Thing | list | dict)]
        elif harmless:
            made.taints.clear()
        return made

    def _made(
        self, node: ast.AST, called: str, positional: Sequence[Any], named: Mapping[str, Any], *, is_class: bool
    ) -> Thing:
        """What a class or a function that is not at hand makes of its arguments."""
        made = Thing(ast.unparse(node), (), called, is_class=is_class)
        made.fields |= named
        made.words = [value for value in positional if isinstance(value, str)]
        if not is_class or len(made.words) < len(positional):
            made.taints[self.place(node)] = None
        if called.endswith("Converter"):
            self.reader.notes[f"not priced: {called}"] = None
        return made

    def _copied(self, value: Any, changed: Mapping[str, Any], deep: dict[int, Any] | None) -> Any:
        """A copy, ``deep`` or of the outermost object alone, with some settings changed."""
        self.reader.spend()
        if deep is not None and id(value) in deep:
            return deep[id(value)]
        if not isinstance(value, Thing | list | dict):
            return value
        if isinstance(value, Thing):
            made: Any = Thing(value.text, value.may_be, value.called, is_class=value.is_class)
            made.words, made.taints, made.fields, made.parts = (
                value.words,
                dict(value.taints),
                {**value.fields, **changed},
                dict(value.parts),
            )
            inner = [made.fields, made.parts]
        else:
            made = value.copy()
            inner = [made]
            if self.reader.is_open(value):
                self.reader.hidden[id(made)] = made
        if deep is not None:
            deep[id(value)] = made
            for each in inner:
                for key, part in list(each.items() if isinstance(each, dict) else enumerate(each)):
                    each[key] = self._copied(part, {}, deep)
        return made


def _first(text: str) -> str:
    """The first name of words."""
    return text.lstrip(".").split(".")[0].split("(")[0]


def _is_harmless(text: str) -> bool:
    """Whether a function changes nothing: one of a harmless module, or a harmless one of Python itself."""
    root = _first(text)
    return root in HARMLESS and (text == root or not hasattr(builtins, root))


def _part(value: Any, name: str) -> Any:
    return value.part(name) if isinstance(value, Thing) else Thing(f"a part of {name}", [value])


def _calls(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call | ast.NamedExpr) for each in ast.walk(node))


def _changes(node: ast.AST) -> bool:
    """Whether an expression calls what may change something."""
    functions = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = [each.attr if isinstance(each, ast.Attribute) else ast.unparse(each) for each in functions]
    return any(isinstance(each, ast.NamedExpr) for each in ast.walk(node)) or not ASKING.issuperset(names)
