"""
Lists the packages of the distribution: every folder of sources, by the name that ``package-dir`` maps it to.

An editable installation puts ``src`` on the path. By default setuptools installs a finder that Python asks after the
path. Beside a clone named ``taut`` the path has the folder of the clone, which would then be imported as an empty
package. If the links to the three folders at the top are lost, only the finder works.
"""

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
            if path.suffix in {".py", ".yaml", ".csv", ".json"} and not linked:
                found.add(".".join((name, *inner)))
    return sorted(found)


linked = all((Path("src/taut") / folder / "__init__.py").is_file() for folder in ("data", "formulations", "solver"))
if linked:
    setup(packages=packages(), package_dir={"": "src", **FOLDERS}, options={"editable_wheel": {"mode": "compat"}})
else:
    setup(packages=packages())
