"""A release: what states its version, its bounds and its steps agrees."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUNDS = {name: bounds for name, bounds in (re.split(r"(?=>=)", line) for line in PROJECT["dependencies"])}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def recipe() -> dict[str, Any]:
    return dict(yaml.safe_load(read("packaging/conda/recipe.yaml")))


def test_one_version_everywhere() -> None:
    """Changelog, citation, recipe and lock file state the version of the package."""
    version = PROJECT["version"]
    first = re.search(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    cited = yaml.safe_load(read("CITATION.cff"))
    assert first is not None and first.groups() == (version, str(cited["date-released"]))
    assert cited["version"] == recipe()["context"]["version"] == version
    locked = {each["name"]: each.get("version") for each in tomllib.loads(read("uv.lock"))["package"]}
    assert locked["taut"] == version and set(BOUNDS) <= locked.keys()


def test_dependencies_have_both_bounds() -> None:
    """Every dependency has a lower and an upper bound, and the recipe has the same."""
    assert all(re.fullmatch(r">=[\d.]+,<\d+", bounds) for bounds in BOUNDS.values())
    other = {"ortools-python": "ortools"}
    needed = dict(line.split(" ") for line in recipe()["requirements"]["run"])
    python = needed.pop("python")
    assert python == PROJECT["requires-python"]
    assert {other.get(name, name): bounds for name, bounds in needed.items()} == BOUNDS


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """``constraints-lowest.txt`` pins the least version that each bound accepts; of ortools the first of 9.11."""
    pins = dict(line.split("==") for line in read("constraints-lowest.txt").splitlines() if not line.startswith("#"))
    least = {name: bounds.removeprefix(">=").partition(",")[0] for name, bounds in BOUNDS.items()}
    assert pins.pop("ortools").startswith(least.pop("ortools"))
    assert pins == least


@pytest.mark.parametrize("name", [".github/workflows/ci.yml", ".gitlab-ci.yml"])
def test_forges_run_what_developers_run(name: str) -> None:
    """Workflows are YAML and call ``.ci/run``."""
    assert "bash .ci/run" in str(yaml.safe_load(read(name)))


def test_a_script_beside_a_clone_imports_the_package(tmp_path: Path) -> None:
    """A folder named taut beside a script, as a clone is, hides no installed package."""
    (tmp_path / "taut").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import taut\nprint(taut.load_cluster('dgx-a100').num_devices)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_pages_for_agents_are_there() -> None:
    """``llms.txt`` links to pages of the site, and the skill names verbs that exist."""
    links = re.findall(r"\]\(([^)]+)/\)", read("docs/llms.txt"))
    generated = {"reference/command-line", "reference/python"}
    assert links and all((ROOT / "docs" / f"{link}.md").is_file() for link in set(links) - generated)
    skill = read("packaging/skill/SKILL.md")
    _, head, body = skill.split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"name", "description"}
    verbs = set(re.findall(r"`taut ([a-z]+)", body)) - {"mcp"}
    help_text = subprocess.run([sys.executable, "-m", "taut", "--help"], capture_output=True, text=True, check=True)
    assert verbs and all(re.search(rf"\b{verb}\b", help_text.stdout) for verb in verbs)
