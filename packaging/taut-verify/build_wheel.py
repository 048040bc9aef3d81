"""
Build ``taut-verify``, the checker of plans and schedules as a distribution of its own.

The wheel holds what ``taut.verification`` reaches through imports, those inside functions included, and the catalog. It
needs numpy. ``pydantic_part.py`` stands for pydantic in it, and JSON for the catalog's YAML. Solver libraries stay out,
and numba with them: Python runs the loops, or numba where the extra ``fast`` installs it. All modules lie in
``taut_verify/sources``, which only the command itself puts on its path, so that taut and pydantic may be installed
beside it.

Where taut is installed::

    python packaging/taut-verify/build_wheel.py DIST
"""

import ast
import base64
import hashlib
import json
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from taut.data.read_yaml import read_yaml

ROOT = Path(__file__).resolve().parents[2]
START = "taut.verification"
NEED = "numpy"
FAST = "numba"
PLACE = "taut_verify/sources"
FACE = '"""The part of taut that checks plans and schedules."""\n'
MAIN = '''"""Check plans and schedules, ``taut-verify FILE ...``: exit code 0 if all hold, 1 if not, 2 for bad files."""

import sys
from pathlib import Path


def main() -> None:
    """Check the named files."""
    sys.path.insert(0, str(Path(__file__).parent / "sources"))
    from taut.errors import TautError
    from taut.verification import checked

    paths, code = [Path(each) for each in sys.argv[1:]], 0
    if not paths or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    for path in paths:
        try:
            outcome, words, _ = checked(path)
        except TautError as error:
            print(error, file=sys.stderr)
            code = 2
            continue
        if outcome.holds:
            print("\\n".join(f"{path}: {line}" for line in words))
        else:
            print(f"{path}: does not hold: " + "; ".join(outcome.faults), file=sys.stderr)
            code = code or 1
    sys.exit(code)


if __name__ == "__main__":
    main()
'''
READER = '''"""The catalog, which is JSON here; the checker reads no YAML."""

from pathlib import Path
from typing import Any

from taut.data.read import read_json
from taut.errors import DataError


def read_yaml(path: Path, expected: str = "the catalog", *, shipped: bool = False) -> dict[str, Any]:
    """Values of a file of the catalog."""
    return read_json(path.with_suffix(".json"), expected)


def values_in_braces(text: str, where: str) -> object:
    """A device in braces is refused."""
    raise DataError(f"{where}: is YAML, which the checker does not read")
'''


def path_of(module: str) -> Path | None:
    """File of a module of taut; None for names inside one."""
    parts = module.split(".")[1:]
    base = ROOT if parts[:1] and parts[0] in ("data", "formulations", "solver") else ROOT / "src" / "taut"
    base = base.joinpath(*parts)
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def imported(node: ast.AST) -> Iterator[str]:
    """Names that a module imports, without imports for types alone."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def reached() -> dict[str, Path]:
    """Modules of taut that the checker imports, with the packages that they are in, and their files."""
    found, waiting = dict[str, Path](), [START]
    while waiting:
        module = waiting.pop()
        path = path_of(module) if module.startswith("taut.") else None
        if path is None or module in found:
            continue
        found[module] = path
        waiting += imported(ast.parse(path.read_text(encoding="utf-8")))
        waiting.append(module.rpartition(".")[0])
    return found


def contents() -> dict[str, bytes]:
    """Files of the wheel by their place in it."""
    held = {"taut_verify/__init__.py": FACE.encode(), "taut_verify/__main__.py": MAIN.encode()}
    held[f"{PLACE}/taut/__init__.py"] = FACE.encode()
    for module, path in sorted(reached().items()):
        place = module.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        held[f"{PLACE}/{place}"] = path.read_bytes()
    held[f"{PLACE}/taut/data/read_yaml.py"] = READER.encode()
    held[f"{PLACE}/pydantic.py"] = Path(__file__).with_name("pydantic_part.py").read_bytes()
    for path in sorted((ROOT / "data" / "catalog").glob("*.yaml")):
        values = read_yaml(path, shipped=True)
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        assert json.loads(text) == values, f"{path}: holds what JSON does not"
        held[f"{PLACE}/taut/data/catalog/{path.stem}.json"] = text.encode()
    return held


def build(folder: Path) -> Path:
    """Write the wheel into a folder; returns its path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version, held, info = project["version"], contents(), f"taut_verify-{project['version']}.dist-info"
    floors = {each.partition(">=")[0]: each for each in project["dependencies"]}
    lines = [
        "Metadata-Version: 2.4",
        "Name: taut-verify",
        f"Version: {version}",
        "Summary: Checks the certificates of taut's plans and schedules.",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        f"Requires-Dist: {floors[NEED]}",
        "Provides-Extra: fast",
        f'Requires-Dist: {floors[FAST]}; extra == "fast"',
    ]
    held[f"{info}/METADATA"] = "\n".join([*lines, ""]).encode()
    held[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: taut\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    held[f"{info}/entry_points.txt"] = b"[console_scripts]\ntaut-verify = taut_verify.__main__:main\n"
    held[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in held.items()]
    held[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"taut_verify-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in held.items():
            wheel.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    made = build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    print(f"{made}: {made.stat().st_size} bytes, {len(reached())} modules")
