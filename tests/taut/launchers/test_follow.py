"""
Random recipes, read and run: a setting is read as Python sets it, or what keeps it from being known is named.

A recipe changes a configuration by assignments, conditions that are known or not, loops, functions beside it and of
files that are not at hand, containers, copies and what ends a function early. Python runs it with all files at hand.
"""

import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from taut.errors import DataError
from taut.launchers.recipes import module_fields

SETTINGS = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "cp": "model.context_parallel_size",
    "mb": "train.micro_batch_size",
}
FRAMEWORK = """
class ConfigContainer:
    def __init__(self, **given):
        self.__dict__.update(given)
Model = Train = ConfigContainer
"""
UNSEEN = """
def flag(): return CHOICE.random() < 0.5
def number(*given): return CHOICE.randint(1, 9)
def several(): return list(range(CHOICE.randint(0, 3)))
def tune(cfg, value=7):
    cfg = cfg[0] if isinstance(cfg, list) else cfg
    (cfg.model if hasattr(cfg, "model") else cfg).tensor_model_parallel_size = value
    return cfg
def grow(each): each.append(9) if isinstance(each, list) else each.update(a=9)
def same(each): return each
class Guard:
    def __enter__(self): return self
    def __exit__(self, *given): return False
"""
BESIDE = """
STATE = {"a": 2, "b": 3}
ITEMS = [1, 2]
LEVEL = 4
def degrees(cfg, tp, *, pp=1, **more):
    cfg.model.tensor_model_parallel_size = tp
    cfg.model.pipeline_model_parallel_size = pp + len(more)
def keep(value, into=[]):
    into.append(value)
    return len(into)
def level(): return LEVEL + STATE["a"]
def remember(value):
    STATE["a"] = value
    return ITEMS
def scaled(value, *rest): return value * 2 + sum(rest)
"""
HEAD = """
import copy
import beside
import unseen
from beside import STATE, ITEMS, LEVEL, degrees, keep, scaled
from copy import deepcopy
from megatron.bridge import ConfigContainer, Model, Train
from unseen import flag, number, several, tune, grow, same, Guard
TABLE = {"a": 1, "b": 2, "small": dict(tp=2, pp=2)}
def choose(x):
    if x > 3:
        return 4
    return x + 1
def early(cfg, x):
    if flag():
        return 1
    cfg.model.context_parallel_size = x
    return x
def recipe():
    degrees_of = dict(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, context_parallel_size=1)
    cfg = ConfigContainer(model=Model(**degrees_of), train=Train(micro_batch_size=1))
    a, b, c = 1, 2, 3
    def up():
        nonlocal a
        a = a + 1
    alias = []
    held, items, m = {"a": 1, "b": 2}, [1, 2, 3], cfg.model
"""


KNOWN_NUMBERS = """1 2 4 a b c LEVEL held['a'] items[0] STATE['a'] beside.STATE['b'] len(items) TABLE['b']
beside.LEVEL items[-1] beside.level() held.get('x',5) TABLE['small']['tp'] m.context_parallel_size
cfg.model.tensor_model_parallel_size"""
UNKNOWN_NUMBERS = """number()|unseen.number(a)|(a if flag() else b)|(flag() or c)|same(held)['a']
len(several())|sum(x for x in several())|getattr(cfg.model, 'none', a)"""
NUMBERS = """({x} + {y})|max({x}, {y})|({x} if {y} > 2 else {y})|({x} or {y})|scaled({x}, {y})|choose({x})
keep({x})|(c := {x})|sum([z + {y} for z in items])|int(f'{{len(items)}}{{LEVEL}}')|beside.scaled(value={x})
min({x}, 8)|(not {x}) + 1|dict(z={x}, y={y})['z']|[{x}, {y}][1]|(lambda z: z + 1)({x})|({x} == {y}) + 1
{{**held, 'a': {x}}}['a']|[p + q for p, q in zip(items, [{x}, {y}])][0]|len([*items, {x}])"""
UNKNOWN_TESTS = "flag()|number() > 4|unseen.flag()|same(items)"
TESTS = """{x} > {y}|{x} == {y}|not {x} < {y}|{x} in items|cfg is not None|{x} and {y} > 2
__name__ == '__main__'|1 < {x} < 4|isinstance(cfg, int)"""
UNKNOWN_LINES = """tune(cfg)|unseen.tune(cfg)|tune(cfg=cfg)|tune(m, 5)|tune([cfg])|grow(items)|grow(held)
cfg = same(cfg)|other = same(m); other.context_parallel_size = 6|unseen.grow(STATE)
held['a' if flag() else 'b'] = 6|early(cfg, a)
n = m if flag() else copy.copy(m); n.pipeline_model_parallel_size = 5|TABLE[number()] = 1
type(m).__setattr__(m, '{field}', {x})|put = m.__setattr__; put('{field}', {x})|Model.extra = {x}
any(held.update(a=z) or z > 1 for z in [{x}, {y}])|all(items.append(z) or z < 2 for z in [{x}, {y}])
object.__setattr__(m, '{field}', {x})|sorted([m], key=lambda z: setattr(z, '{field}', {x}) or 1)
z: tune(m, {x}) = {y}|n = deepcopy(m); n.__setattr__('{field}', {x}); cfg.{name} = n.{field}
def noted(z: tune(cfg)): return z|def told(z) -> tune(m, 3): return z|sorted([m], key=lambda z: tune(z))
held.update(b=a) if flag() else None|unseen.same(m.__setattr__)('context_parallel_size', 3)
f = lambda: tune(cfg); f()|setattr(m, 'tensor' + '_model_parallel_size' if flag() else 'x', 6)"""
LINES = """alias = items|a = len(alias)|up()|a = len({{a, b}})
cfg.{name} = {x}|cfg.{name} = {y}|cfg.{name} += {y}|setattr(cfg.{section}, '{field}', {x})
a = {x}|b, c = {x}, {y}|held['a'] = {x}|held.update(b={x})|held.update({{'a': {x}}})|items.append({x})
items += [{x}, {y}]|degrees(cfg, {x}, pp={y})|degrees(cfg=cfg, tp={x}, extra={y})|beside.remember({x})
beside.LEVEL = {x}|m.context_parallel_size = {x}|n = m; m = cfg.model|m = deepcopy(cfg.model)
cfg = copy.deepcopy(cfg)|other = deepcopy(cfg); other.model.tensor_model_parallel_size = {x}|early(cfg, {x})
held.pop('a', None); held.setdefault('a', {x})|cfg.extra = {x}|degrees(cfg, **TABLE['small'])
for k, v in {{'{field}': {x}}}.items(): setattr(cfg.{section}, k, v)|assert {x} > 0 or True"""
BLOCKS = """
if {test}:
    inner
---
if {test}:
    inner
    return cfg
---
if {test}:
    inner
else:
    more
---
if {test}:
    raise ValueError(a)
---
for a in {many}:
    a = len(str(a))
    inner
---
for a in {many}:
    inner
    if {test}:
        break
    more
---
for a in {many}:
    inner
    if {test}:
        continue
    more
---
w{loop} = 0
while w{loop} < 3:
    w{loop} += 1
    inner
---
try:
    inner
except Exception:
    more
---
try:
    inner
    held[7]
except KeyError:
    more
---
try:
    inner
finally:
    more
---
with Guard() as g:
    inner
---
match {x}:
    case 1:
        inner
    case _:
        more
---
def local(z, y=2):
    m.context_parallel_size = z + y
    return z
local({x})
---
class Own:
    level = 3
cfg.model.context_parallel_size = Own.level
---
class Base:
    def __init_subclass__(cls):
        cfg.model.context_parallel_size = {x}
class Below(Base):
    pass
---
class Meta(type):
    def __init__(cls, *given):
        m.context_parallel_size = {x}
class Made(metaclass=Meta):
    pass
---
class Counted:
    def __init__(self, z):
        self.level = z
cfg.model.context_parallel_size = Counted({x}).level"""


class Writer:
    """Writes the lines of a recipe; ``unknown``: how often something is not known."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.unknown = self.random.choice((0.0, 0.0, 0.05, 0.2))
        self.loops = 0

    def one(self, options: str, unknown: str = "", depth: int = 0, **words: str) -> str:
        """One of some words, filled in; of the unknown ones as often as something is not known."""
        if unknown and self.random.random() < self.unknown:
            options = unknown
        chosen = self.random.choice(options.replace("\n", "|").split("|"))
        if "{x}" in chosen:
            words["x"] = self.number(depth + 1)
        if "{y}" in chosen:
            words["y"] = self.number(depth + 1)
        return chosen.format(**words)

    def number(self, depth: int = 0) -> str:
        """An expression of a whole number."""
        simple = depth > 2 or self.random.random() < 0.4
        return self.one("|".join(KNOWN_NUMBERS.split()) if simple else NUMBERS, UNKNOWN_NUMBERS, depth)

    def line(self, depth: int) -> list[str]:
        """One statement, with what stands in it."""
        name = self.random.choice([*SETTINGS.values()])
        section, _, field = name.partition(".")
        if depth > 2 or self.random.random() < 0.55:
            return [self.one(LINES, UNKNOWN_LINES, name=name, section=section, field=field)]
        parts = {"inner": self.block(depth + 1), "more": self.block(depth + 1)}
        self.loops += 1
        many = self.one("range(3)|list(items)|held|(1, 2)", "several()|list(same(items))")
        words = {"many": many, "test": self.one(TESTS, UNKNOWN_TESTS, 1), "x": self.number(1), "loop": str(self.loops)}
        found: list[str] = []
        for line in self.random.choice(BLOCKS.split("\n---\n")).strip().split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            found += [indent + each for each in parts.get(line.strip(), [line.strip().format(**words)])]
        return found

    def block(self, depth: int) -> list[str]:
        """Some statements."""
        return [line for _ in range(self.random.randint(1, 3 if depth else 7)) for line in self.line(depth)]


def write(seed: int) -> str:
    """A recipe."""
    writer = Writer(seed)
    stars = writer.random.choice(["", "", "from beside import *\n", "from unseen import *\n"])
    return stars + HEAD + "".join(f"    {line}\n" for line in writer.block(0)) + "    return cfg\n"


def run(text: str, seed: int) -> dict[str, Any]:
    """What Python makes of a recipe; nothing where it stops."""
    modules = {"megatron": "", "megatron.bridge": FRAMEWORK, "unseen": UNSEEN, "beside": BESIDE}
    kept = {name: sys.modules.pop(name, None) for name in modules}
    names: dict[str, Any] = {"__name__": "recipe"}
    try:
        for name, code in modules.items():
            made = types.ModuleType(name)
            made.__dict__["CHOICE"] = random.Random(seed)
            exec(code, made.__dict__)
            sys.modules[name] = made
        exec(compile(text, "recipe.py", "exec"), names)
        cfg = names["recipe"]()
        return {
            path: getattr(getattr(cfg, path.partition(".")[0]), path.partition(".")[2]) for path in SETTINGS.values()
        }
    except Exception:
        return {}
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update({name: module for name, module in kept.items() if module is not None})


def verdict(seed: int, folder: Path) -> str:
    """equal, named, refused, stopped (by Python itself), or different; the last is a misreading."""
    text = write(seed)
    try:
        found = module_fields(text, "recipe", folder)
    except DataError:
        return "refused" if run(text, seed) else "stopped"
    verdicts = set()
    for again in range(4):
        for path, value in run(text, seed + 1_000_000 * again).items():
            named = any("may set" in each or path in each for each in found.named)
            equal = path in found.fields and found.fields[path] == value
            verdicts.add("equal" if equal else "named" if named else "different")
    return next((each for each in ("different", "named", "equal") if each in verdicts), "stopped")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file that recipes import from."""
    found = tmp_path_factory.mktemp("recipes")
    (found / "beside.py").write_text(BESIDE)
    return found


def test_no_setting_is_misread(folder: Path) -> None:
    """No setting is different in silence, and most recipes are read."""
    verdicts = [verdict(seed, folder) for seed in range(150)]
    assert [seed for seed, each in enumerate(verdicts) if each == "different"] == []
    assert verdicts.count("equal") > 30, {each: verdicts.count(each) for each in set(verdicts)}
