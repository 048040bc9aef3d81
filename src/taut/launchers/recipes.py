"""
Settings that a Python file makes, read without running it: recipes of Megatron-Bridge and NeMo, torchtitan's functions.

Dictionaries that are written out under the names that ``taut export`` gives them are read alone, (1). Any other file is
followed in the order in which Python would run it:

(2) a value is known if it is written out, or is a name, a sum, a product or a part of such values;
(3) a call of a class, or of ``run.Config(Class, ...)``, is a configuration whose settings are its named arguments;
    ``config.path = value`` sets one more, and the last value counts;
(4) a call of a function of the file, or of a file that it imports from and that lies beside it or above, is followed
    with its arguments; what any other function sets is not known, and the function is named;
(5) of ``if`` the branch is followed whose condition is known to hold; of other conditions, and of loops, no branch is,
    and what they set is not known.

A file makes the configuration that its own statements make, or else those of its public functions: one, or one that the
user names (``recipe.py:function``). A setting that speaks of memory or time and is not known is named.
"""

import ast
import builtins
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from taut.data.read import read_text
from taut.data.suggest import nearest
from taut.errors import DataError
from taut.launchers.paths import is_megatron
from taut.launchers.settings import DECIDING, known
from taut.launchers.torchtitan import MODE, PARTS, is_torchtitan

EXPECTED = "expected PARALLELISM and TRAINING as dictionaries, written out"
SECTIONS = {"PARALLELISM": "parallelism", "TRAINING": "training", "COMPILE": "compile"}
CHUNKS, SETTINGS = "CHUNKS", "SETTINGS"
CLASSES: dict[str, str] = known("torchtitan_classes")
"""torchtitan's classes, by the section that they state."""
MODES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.In: lambda one, several: one in several, ast.NotIn: lambda one, several: one not in several,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
FORMATS = ("mixed_precision", "plugins", "precision")
"""Settings whose precision is the name of what makes them."""
MOST_STEPS, MOST_DEPTH, MOST_BYTES = 50_000, 20, 2_000_000
"""Statements and values, calls in one another, and bytes of a file, beyond which a file is refused."""


class Unread(NamedTuple):
    """A value that is not known, and what stands in its place."""

    text: str


class Config(dict[str, Any]):
    """
    Settings by name.

    ``called``: the class or function that made it; ``follows``: whether it is a function, whose settings are not known;
    ``words``: texts among its arguments.
    """

    def __init__(
        self,
        called: str = "",
        values: Mapping[str, Any] | None = None,
        *,
        follows: bool = False,
        words: Sequence[str] = (),
    ) -> None:
        super().__init__(values or {})
        self.called, self.follows, self.words = called, follows, words


class Found(NamedTuple):
    """Fields by path, and sentences on what is not known."""

    fields: dict[str, Any]
    named: tuple[str, ...] = ()


def module_fields(text: str, function: str = "", folder: Path | None = None) -> Found:
    """Fields of a Python file, of one ``function`` if it is named; a ``DataError`` if it makes none or several."""
    try:
        tree = ast.parse(text)
        if written := _written_out(tree):
            modes = (mode for name, mode in MODES.items() if f"activation_checkpoint = {name}.Config()" in text)
            return Found(written if is_megatron(written) else written | {MODE: next(modes, "none")})
        return _made(_Module(tree, folder, _Budget()), function)
    except DataError:
        raise
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError, MemoryError, ArithmeticError):
        raise DataError(f"Python file: {EXPECTED}") from None


def _written_out(tree: ast.Module) -> dict[str, Any]:
    """Fields of the dictionaries that a module of ``taut export`` has, (1)."""
    found: dict[str, Any] = {}
    for line in tree.body:
        if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
            continue
        name = line.targets[0].id
        if name == CHUNKS:
            chunks = ast.literal_eval(line.value)
            found[PARTS] = [[f"layers.{layer}" for layer in range(first, end)] for first, end in chunks]
        elif name == SETTINGS:
            found |= ast.literal_eval(line.value)
        elif name in SECTIONS:
            found |= {f"{SECTIONS[name]}.{field}": value for field, value in ast.literal_eval(line.value).items()}
    return found


def _made(module: "_Module", function: str) -> Found:
    """What a file's statements make, or else one of its public functions."""
    own = [name for name in module.functions if not name.startswith("_")]
    if function:
        if function not in module.functions:
            near = nearest(function, own)
            raise DataError(f"{function}: no function of the file, expected {near or ', '.join(own[:12]) or 'one'}")
        return _found(*module.configurations(function))
    if (found := _found(*module.configurations(""))).fields:
        return found
    made = {name: _found(*module.configurations(name)) for name in own}
    made = {name: each for name, each in made.items() if each.fields}
    if not made:
        raise DataError(f"Python file: {EXPECTED}")
    if len({str(sorted(each.fields.items(), key=str)) for each in made.values()}) > 1:
        names = ", ".join(list(made)[:6]) + (", ..." if len(made) > 6 else "")
        words = f"expected one configuration in a file, or FILE.py:{next(iter(made))}"
        raise DataError(f"Python file: makes {len(made)} configurations ({names}), {words}")
    return next(iter(made.values()))


def _found(configurations: Sequence[Config], notes: Sequence[str]) -> Found:
    """Fields of configurations that are a launcher's, which do not contradict each other."""
    fields: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    named = list(notes)
    for each in configurations:
        for path, value in _flat(each, f"{CLASSES[each.called]}." if each.called in CLASSES else ""):
            if isinstance(value, Unread):
                unknown[path] = value.text
                continue
            if path in fields and fields[path] != value:
                several = "expected one configuration in a file"
                raise DataError(f"Python file: {path} is {fields[path]} and {value}, {several}")
            fields[path] = value
        if each.follows and each.called:
            named.append(f"{each.called}(): what it sets is not read")
    if not (is_megatron(fields) or is_torchtitan(fields)):
        return Found({})
    deciding = {path: text for path, text in unknown.items() if DECIDING.search(path) and path not in fields}
    named += [f"{path}: {text:.80}, which is not known, is not read" for path, text in deciding.items()]
    return Found(fields, tuple(dict.fromkeys(named)))


def _flat(config: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    """Settings by path; a configuration stands for a word where its name is that of a precision or of adapters."""
    for name, value in config.items():
        path = f"{before}{name}"
        if "Muon" in name and before.startswith("optimizer"):
            yield "optimizer.name", name
        if name == "activation_checkpoint" and (value is None or isinstance(value, Config)):
            yield from [] if value and "mode" in value else [(MODE, MODES.get(getattr(value, "called", ""), "none"))]
        if isinstance(value, Config):
            words = " ".join([value.called, *value.words])
            if name == "peft" or (name in FORMATS and re.search(r"fp\d|bf16", words)):
                yield "trainer.precision" if name == "plugins" else path, words.strip() or "adapters"
            yield from _flat(value, f"{path}.")
        elif isinstance(value, Unread) and value.text.startswith("torch."):
            yield path, value.text
        else:
            yield path, value


class _Budget:
    """Steps that are left for a file and the files that it imports from."""

    def __init__(self) -> None:
        self.left = MOST_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DataError(f"Python file: more than {MOST_STEPS} steps, expected a configuration")


class _Module:
    """Functions, constants and imports of a file."""

    def __init__(self, tree: ast.Module, folder: Path | None, budget: _Budget, depth: int = 0) -> None:
        self.tree, self.folder, self.budget, self.depth = tree, folder, budget, depth
        self.functions = {line.name: line for line in tree.body if isinstance(line, ast.FunctionDef)}
        lines = [line for line in ast.walk(tree) if isinstance(line, ast.ImportFrom)]
        self.imports = {each.asname or each.name: (line, each.name) for line in lines for each in line.names}
        self.files: dict[Path, _Module] = {}
        self.notes: list[str] = []
        self.globals: dict[str, Any] = {}

    def configurations(self, function: str) -> tuple[list[Config], list[str]]:
        """Configurations that a function returns, or else holds, and what is not known of them; "": the file's own."""
        self.notes.clear()
        self.globals = {}
        frame = _Frame(self, self.globals, 0)
        value = frame.run(self.tree.body)
        if function:
            self.notes.clear()
            value, frame = _call(self, self.functions[function], [], {}, 0)
        held = [value] if isinstance(value, Config) else [v for v in frame.names.values() if isinstance(v, Config)]
        return list({id(each): each for each in held}.values()), list(self.notes)

    def function(self, name: str) -> "tuple[_Module, ast.FunctionDef] | None":
        """A function of this name with its file: of this one, or of one that it imports from, (4)."""
        if name in self.functions:
            return self, self.functions[name]
        if name not in self.imports or self.depth > MOST_DEPTH:
            return None
        line, original = self.imports[name]
        found = self._imported(line)
        return found.function(original) if found is not None else None

    def constant(self, name: str) -> Any:
        """A value that the file gives a name at its top, or imports."""
        if name in self.globals or name not in self.imports:
            return self.globals.get(name, Unread(name))
        found = self._imported(self.imports[name][0])
        return found.constant(self.imports[name][1]) if found is not None and found is not self else Unread(name)

    def _imported(self, line: ast.ImportFrom) -> "_Module | None":
        """The file that a line imports from, if it lies beside this one or above."""
        if self.folder is None:
            return None
        parts = (line.module or "__init__").split(".")
        above = [self.folder.absolute(), *self.folder.absolute().parents]
        folders = above[line.level - 1 : line.level] if line.level else above[:12]
        tails = (Path(*parts).with_suffix(".py"), Path(*parts, "__init__.py"))
        path = next((folder / tail for folder in folders for tail in tails if (folder / tail).is_file()), None)
        if path is None:
            return None
        if path not in self.files:
            tree = ast.parse(read_text(path, "a file that a recipe imports from", MOST_BYTES))
            made = _Module(tree, path.parent, self.budget, self.depth + 1)
            made.files, made.notes = self.files, self.notes
            self.files[path] = made
            _Frame(made, made.globals, 0).run(tree.body)
        return self.files[path]


def _call(
    module: _Module, function: ast.FunctionDef, positional: Sequence[Any], named: Mapping[str, Any], depth: int
) -> "tuple[Any, _Frame]":
    """What a function returns for arguments, and its names."""
    given = function.args
    parameters = [each.arg for each in [*given.posonlyargs, *given.args]]
    frame = _Frame(module, {}, depth + 1)
    defaults = dict(zip(parameters[::-1], given.defaults[::-1], strict=False))
    defaults |= {each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
    names = {name: Config(follows=True) if name not in defaults else frame.value(defaults[name]) for name in parameters}
    names |= {
        each.arg: frame.value(defaults[each.arg]) if each.arg in defaults else Config(follows=True)
        for each in given.kwonlyargs
    }
    names |= dict(zip(parameters, positional, strict=False)) | {name: named[name] for name in named if name in names}
    if given.kwarg is not None:
        names[given.kwarg.arg] = Config("", {name: value for name, value in named.items() if name not in names})
    frame.names |= names
    return frame.run(function.body), frame


def _copied(config: Config) -> Config:
    """The configuration with copies of its parts, so that a change of one leaves the other."""
    parts = {name: _copied(each) if isinstance(each, Config) else each for name, each in config.items()}
    return Config(config.called, parts, follows=config.follows, words=config.words)


def _truth(value: Any) -> bool | None:
    """Whether a value holds as a condition, None where it is not known."""
    if isinstance(value, Unread) or (isinstance(value, Config) and value.follows):
        return None
    return bool(value) or (isinstance(value, Config) and bool(value.called))


class _Return(Exception):
    """The value that a function returns."""


class _Frame:
    """Names of a function, or of a file's own statements."""

    def __init__(self, module: _Module, names: dict[str, Any], depth: int) -> None:
        self.module, self.names, self.depth = module, names, depth

    def run(self, body: Sequence[ast.stmt]) -> Any:
        """Follow statements; returns what they return."""
        try:
            self._follow(body)
        except _Return as returned:
            return returned.args[0]
        return None

    def _follow(self, body: Sequence[ast.stmt]) -> None:
        for line in body:
            self.module.budget.spend()
            match line:
                case ast.Assign():
                    value = self.value(line.value)
                    for target in line.targets:
                        self._assign(target, value)
                case ast.AnnAssign() if line.value is not None:
                    self._assign(line.target, self.value(line.value))
                case ast.AugAssign():
                    self._assign(line.target, Unread(ast.unparse(line)))
                case ast.Return():
                    raise _Return(self.value(line.value) if line.value is not None else None)
                case ast.Expr():
                    self.value(line.value)
                case ast.If():
                    self._branch(line)
                case ast.With() | ast.Try():
                    self._follow(line.body)
                case ast.For() | ast.While():
                    self._forget(line.body)
                case _:
                    pass

    def _branch(self, line: ast.If) -> None:
        """Follow the branch whose condition is known to hold, or forget what both set, (5)."""
        test = _truth(self.value(line.test))
        if test is None:
            if ast.unparse(line.test) in ("__name__ == '__main__'", "'__main__' == __name__"):
                return self._follow(line.body)
            return self._forget([*line.body, *line.orelse])
        return self._follow(line.body if test else line.orelse)

    def _forget(self, body: Sequence[ast.stmt]) -> None:
        """Leave what statements set unknown."""
        for line in body:
            for node in ast.walk(line):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(target, Unread(f"{ast.unparse(node.value)}, behind a condition"))
                elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
                    self._assign(node.target, Unread(f"{ast.unparse(node.value)}, behind a condition"))
                elif isinstance(node, ast.Call) and any(isinstance(self.value(each), Config) for each in node.args):
                    self.module.notes.append(
                        f"{ast.unparse(node.func)}(): behind a condition, what it sets is not read"
                    )

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            several = isinstance(value, list | tuple) and not isinstance(value, Unread)
            known = several and len(value) == len(target.elts)
            for place, each in enumerate(target.elts):
                self._assign(each, value[place] if known else Unread(f"a part of {ast.unparse(target)}"))
        elif isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute) and (section := self._section(target.value)) is not None:
            section[target.attr] = value
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            section = self._section(target.value)
            if section is not None:
                section[str(target.slice.value)] = value

    def _section(self, node: ast.expr) -> Config | None:
        """The configuration at a path, made where nothing is known there."""
        match node:
            case ast.Name():
                value = self.names.get(node.id, self.module.constant(node.id))
                if isinstance(value, Unread):
                    value = self.names[node.id] = Config()
            case ast.Attribute():
                outer = self._section(node.value)
                if outer is None:
                    return None
                value = outer.get(node.attr)
                if not isinstance(value, Config):
                    value = outer[node.attr] = Config()
            case _:
                value = self.value(node)
        return value if isinstance(value, Config) else None

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, (2); ``Unread`` where it is not known."""
        self.module.budget.spend()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.names[node.id] if node.id in self.names else self.module.constant(node.id)
            case ast.Attribute():
                outer = self.value(node.value)
                return (
                    outer.get(node.attr, Unread(ast.unparse(node)))
                    if isinstance(outer, Config)
                    else Unread(ast.unparse(node))
                )
            case ast.List() | ast.Tuple():
                values = [self.value(each) for each in node.elts]
                return Unread(ast.unparse(node)) if any(isinstance(each, Unread) for each in values) else values
            case ast.Dict():
                return self._dictionary(node)
            case ast.Call():
                return self._call(node)
            case ast.UnaryOp():
                value = self.value(node.operand)
                if isinstance(node.op, ast.Not) and (truth := _truth(value)) is not None:
                    return not truth
                if isinstance(node.op, ast.USub) and isinstance(value, int | float):
                    return -value
            case ast.IfExp():
                if (test := _truth(self.value(node.test))) is not None:
                    return self.value(node.body if test else node.orelse)
            case ast.BinOp(op=op, left=left, right=right) | ast.Compare(ops=[op], left=left, comparators=[right]):
                values = [self.value(left), self.value(right)]
                if type(op) in OPERATORS and not any(isinstance(each, Unread | Config) for each in values):
                    large = any(isinstance(each, int) and abs(each) > 2**62 for each in values)
                    return Unread(ast.unparse(node)) if large else OPERATORS[type(op)](*values)
            case ast.BoolOp():
                decides, value = isinstance(node.op, ast.Or), None
                for each in node.values:
                    value = self.value(each)
                    if isinstance(value, Unread) or (isinstance(value, Config) and value.follows):
                        return Unread(ast.unparse(node)[:200])
                    if (isinstance(value, Config) or bool(value)) is decides:
                        break
                return value
            case ast.Subscript():
                outer, key = self.value(node.value), self.value(node.slice)
                if isinstance(outer, Config) and isinstance(key, str):
                    return outer.get(key, Unread(ast.unparse(node)))
        return Unread(ast.unparse(node)[:200])

    def _dictionary(self, node: ast.Dict) -> Config:
        found = Config()
        for key, each in zip(node.keys, node.values, strict=True):
            value = self.value(each)
            if key is None:
                found.update(value if isinstance(value, Config) else {})
            elif isinstance(key, ast.Constant):
                found[str(key.value)] = value
        return found

    def _call(self, node: ast.Call) -> Any:
        """What a call makes, (3) and (4)."""
        name = ast.unparse(node.func)
        positional = [self.value(each) for each in node.args]
        named: dict[str, Any] = {}
        for given in node.keywords:
            value = self.value(given.value)
            named |= {given.arg: value} if given.arg is not None else value if isinstance(value, Config) else {}
        last = name.rpartition(".")[2]
        if last in ("Config", "Partial") and node.args:
            return self._made(ast.unparse(node.args[0]).rpartition(".")[2], named)
        if last == "Config":
            return self._made(name.removesuffix(".Config").rpartition(".")[2], named)
        if last in ("lower", "upper") and isinstance(node.func, ast.Attribute):
            text = self.value(node.func.value)
            return getattr(text, last)() if isinstance(text, str) else Unread(name)
        if last == "dict":
            return Config("", named)
        if last == "cast" and positional:
            return positional[-1]
        if last in ("deepcopy", "replace") and positional and isinstance(positional[0], Config):
            copied = _copied(positional[0])
            copied.update(named)
            return copied
        if isinstance(node.func, ast.Name) and self.depth < MOST_DEPTH and (found := self.module.function(name)):
            return _call(found[0], found[1], positional, named, self.depth)[0]
        if last.lstrip("_")[:1].isupper():
            return self._made(last, named)
        if isinstance(node.func, ast.Attribute) and not isinstance(self.value(node.func.value), Unread):
            return Unread(ast.unparse(node))
        known_name = not isinstance(node.func, ast.Name) or hasattr(builtins, name)
        if not known_name and any(isinstance(each, Config) and each for each in positional):
            self.module.notes.append(f"{name}(): what it sets is not read")
        if isinstance(node.func, ast.Name) and hasattr(builtins, name):
            return Unread(ast.unparse(node)[:200])
        words = [value for value in positional if isinstance(value, str)]
        return Config(last, named, follows=True, words=words)

    def _made(self, called: str, named: Mapping[str, Any]) -> Config:
        """A configuration of a class; kinds that convert products to a narrow format are named."""
        if called.endswith("Converter"):
            self.module.notes.append(f"not priced: {called}")
        return Config(called, named)
