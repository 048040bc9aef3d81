"""Lists the packages of the distribution: every folder of sources, by the name that ``package-dir`` maps it to."""

from pathlib import Path

from setuptools import setup

FOLDERS = {"taut": "src/taut", "taut.data": "data", "taut.formulations": "formulations", "taut.solver": "solver"}


def packages() -> list[str]:
    """Names of all packages; the links to the three folders at the top are not followed."""
    found = set()
    for name, folder in FOLDERS.items():
        for path in Path(folder).rglob("*.*"):
            inner = path.relative_to(folder).parts[:-1]
            linked = name == "taut" and inner and f"taut.{inner[0]}" in FOLDERS
            if path.suffix in {".py", ".yaml", ".csv"} and not linked:
                found.add(".".join((name, *inner)))
    return sorted(found)


setup(packages=packages())
