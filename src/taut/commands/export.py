"""``taut export``: the files that launch a plan."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.commands.options import QuietFlag

if TYPE_CHECKING:
    from taut.planning.plan import Plan

TARGETS = "megatron, megatron-bridge, torchtitan, deepspeed, flagscale, torch-csv, torchrun, slurm, rankfile"


def export_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by taut.")],
    to: Annotated[str, typer.Option(help=f"One framework, and what starts processes, as a list: {TARGETS}.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    hosts: Annotated[
        Path | None, typer.Option(help="Names of the cluster's nodes in its order, one a line; else placeholders.")
    ] = None,
    plainer: Annotated[
        str, typer.Option(help="A plainer plan that the plan lists, such as even-stages, in its place.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files in the folder.")] = False,
    quiet: QuietFlag = False,
) -> None:
    """Write the files that launch a plan: flags or a configuration, the place of every process, what to check first."""
    from taut.exports.export import export
    from taut.exports.job import ExportError
    from taut.planning.plan import load_plan

    plan = load_plan(path)
    plan = plan.plainer_plan(plainer) if plainer else plan
    targets = [name.strip() for name in to.split(",") if name.strip()]
    names = [] if hosts is None else _names(hosts)
    try:
        written = export(plan, targets, out, hosts=names, force=force)
    except ExportError as error:
        raise ExportError(f"{error}{_nearest(plan, targets, quiet=quiet)}") from None
    typer.echo(f"{out}: {', '.join(file.name for file in written)}; read launch.md first")


def _nearest(plan: "Plan", targets: list[str], *, quiet: bool) -> str:
    """The nearest plan that the launcher can run, with its price; nothing where none is found within seconds."""
    from taut.commands.progress import progress_lines
    from taut.exports.nearest import STACKS, nearest_plan

    framework = next(name for name in targets if name in STACKS)
    with progress_lines(quiet or not sys.stderr.isatty()) as progress:
        found = nearest_plan(plan, framework, progress=progress)
    return "" if found is None else f"; {found}"


def _names(path: Path) -> list[str]:
    """Host names: the first word of every line that is no comment."""
    from taut.data.read import read_text
    from taut.quoting import host_name

    lines = read_text(path, "a file of names, one a line").splitlines()
    named = ((number, line.split()) for number, line in enumerate(lines, start=1))
    return [host_name(words[0], f"{path} line {number}") for number, words in named if words and words[0][0] != "#"]
