"""Pages of the site made when it is built: command line, choices, Python names, notebooks and their gallery."""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

import taut
from taut.commands.app import app
from taut.formulations.space import ALWAYS, DEFAULTS, FIELDS
from taut.planning.choices import NAMES
from taut.planning.options import reference

# Mkdocs loads this file by its path, so the folder of the benchmarks is not on Python's.
sys.path.append(str(Path(__file__).parents[1]))
scorecard = importlib.import_module("benchmarks.scorecard").scorecard
ROLE = re.compile(r":(?:math|mod|func|class|meth|attr):<code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "reference/command-line.md", content=command_line()))
    files.append(File.generated(config, "reference/choices.md", content=choices()))
    files.append(File.generated(config, "reference/python.md", content=python_names()))
    files.append(File.generated(config, "results/scorecard.md", content=scorecard()))
    contributing = Path(config.config_file_path).with_name("CONTRIBUTING.md").read_text(encoding="utf-8")
    contributing = contributing.replace("](docs/dev/", "](")
    files.append(File.generated(config, "dev/contributing.md", content=contributing))
    for page in notebook_pages(config):
        files.append(page)
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Show the formulas and names of docstrings as code, without the roles that other tools read."""
    return ROLE.sub("<code>", html)


def command_line() -> str:
    """Every verb with its arguments and options, as ``--help`` has them."""
    root = typer.main.get_command(app)
    parts = [
        "# Command line",
        f"{root.help}\n\nProgress goes to stderr, results to stdout. Exit codes: 0 done; 1 a check failed; "
        "2 bad usage or bad input, in one line; 3 proven infeasible; 4 nothing found within the limit.",
        *verbs("taut", root, 2),
    ]
    return "\n\n".join(parts) + "\n"


def verbs(name: str, command: Any, level: int) -> Iterator[str]:
    """Sections of a command's verbs, and of theirs."""
    for word, verb in command.commands.items():
        yield f"{'#' * level} {name} {word}"
        yield (verb.help or "").strip()
        if hasattr(verb, "commands"):
            yield from verbs(f"{name} {word}", verb, level + 1)
        else:
            yield table(verb)


def table(verb: Any) -> str:
    """Arguments and options of a verb as a table."""
    rows = ["| name | value | meaning |", "|---|---|---|"]
    for parameter in verb.params:
        if parameter.name == "help":
            continue
        is_option = parameter.param_type_name == "option"
        words = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name).upper()
        kind = "" if getattr(parameter, "is_flag", False) or not is_option else value_of(parameter)
        text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
        default = parameter.default
        if parameter.required:
            text += " Required."
        elif isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
            text += f" Default: {default}."
        rows.append(f"| `{words}` | {kind} | {text.strip()} |")
    return "\n".join(rows) if len(rows) > 2 else ""


def value_of(parameter: Any) -> str:
    """The kind of value that an option takes; Typer keeps its own description of it, Click a type with a name."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:
        return str(parameter.type.name)
    kinds = {int: "whole number", float: "number", str: "text", Path: "file"}
    return kinds.get(described.annotation, "")


def choices() -> str:
    """Every field of a strategy, and what else may be fixed, from the table of fields."""
    rows = [
        f"| `{name}` | {'' if name in ALWAYS else f'`{DEFAULTS[name]!r}`'} | {'yes' if name in NAMES else ''} "
        f"| {field.meaning.replace('``', '`')} |"
        for name, field in FIELDS.items()
    ]
    others = ", ".join(f"`{name}`" for name in NAMES if name not in FIELDS)
    return (
        "\n\n".join(
            [
                "# Choices of a plan",
                "The fields of a strategy in a plan's JSON and in `plan.strategy`. A field with a default is written "
                "where it differs from it. `--fix` and `fix=` take the fields that may be fixed.",
                "\n".join(["| field | default | may be fixed | meaning |", "|---|---|---|---|", *rows]),
                f"What may be fixed for all stages beside these fields: {others}.",
            ]
        )
        + "\n"
    )


def python_names() -> str:
    """Every public name of the package, functions first, from its docstring."""
    homes = {name: getattr(taut, name) for name in taut.__all__ if not name.startswith("_")}
    functions = sorted(name for name, value in homes.items() if inspect.isfunction(value))
    errors = sorted(name for name, value in homes.items() if inspect.isclass(value) and issubclass(value, Exception))
    others = sorted(set(homes) - set(functions) - set(errors))
    parts = ["# Python", (importlib.import_module("taut").__doc__ or "").strip().split("\n")[0]]
    for heading, names in (("Functions", functions), ("Classes", others), ("Errors and warnings", errors)):
        parts += [f"## {heading}"] if names else []
        parts += [entry(name, homes[name]) for name in names]
    parts += ["## Options of a request", "`taut.plan` and `taut.PlanRequest` take them by name.", reference()]
    return "\n\n".join(parts) + "\n"


def entry(name: str, value: Any) -> str:
    """The directive that puts a name's docstring on the page."""
    home = getattr(value, "__module__", "taut")
    return f"::: {home}.{name}\n    options:\n      heading_level: 3"


def notebook_pages(config: MkDocsConfig) -> Iterator[File]:
    """A page for each notebook with its stored outputs, their pictures, and the gallery of all."""
    entries = []
    for path in sorted(Path(config.config_file_path).parent.glob("notebooks/*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        text, resources = MarkdownExporter().from_notebook_node(notebook)
        names = {name: f"{path.stem}-{name}" for name in resources["outputs"]}
        for name, new in names.items():
            text = text.replace(f"({name})", f"({new})")
            yield File.generated(config, f"notebooks/{new}", content=resources["outputs"][name])
        yield File.generated(config, f"notebooks/{path.stem}.md", content=text)
        entries.append(gallery_entry(path.stem, notebook.cells[0].source, list(names.values())))
    head = "# Gallery\n\nNotebooks with their outputs. The files are in the folder `notebooks` of the repository.\n\n"
    yield File.generated(config, "notebooks/index.md", content=head + "\n\n".join(entries) + "\n")


def gallery_entry(name: str, text: str, pictures: list[str]) -> str:
    """Title, first paragraph and first picture of a notebook, with a link to its page."""
    title, words = text.split("\n\n")[:2]
    picture = f"\n\n[![{title.lstrip('# ')}]({pictures[0]})]({name}.md)" if pictures else ""
    return f"## [{title.lstrip('# ')}]({name}.md)\n\n{words}{picture}"
