"""Fields of classes of other repositories, read from their sources without importing them."""

import ast
import re
from pathlib import Path


def fields_of(name: str, roots: list[Path]) -> set[str]:
    """
    Names that a class and its bases annotate.

    Parameters
    ----------
    name
        A class's name; of several of that name in the sources the first root's counts.
    roots
        Folders of sources, in the order in which they are searched.
    """
    found: set[str] = set()
    left, seen = [name], set()
    while left:
        current = left.pop()
        if current in seen:
            continue
        seen.add(current)
        for path, node in _definitions(current, roots):
            fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            found |= {field.id for field in fields if isinstance(field, ast.Name)}
            left += [_original(ast.unparse(base).partition("[")[0].split(".")[-1], path) for base in node.bases]
    return found


def _definitions(name: str, roots: list[Path]) -> list[tuple[Path, ast.ClassDef]]:
    """Every definition of a class, with its file."""
    found, wanted = [], re.compile(rf"^class {name}\b", re.MULTILINE)
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8", errors="ignore")
            if wanted.search(text):
                nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
                found += [(path, node) for node in nodes]
    return found


def _original(name: str, path: Path) -> str:
    """The name under which a file imports what it calls by a name."""
    found = re.search(rf"(\w+) as {name}\b", path.read_text(encoding="utf-8", errors="ignore"))
    return found.group(1) if found else name
