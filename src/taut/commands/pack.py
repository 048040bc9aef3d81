"""``taut pack``: a plan's step when its micro-batches are packed from sequences of different lengths."""

import json
from pathlib import Path
from typing import Annotated

import typer

from taut.commands.options import JsonFlag, check_file, check_plot, echo, write_picture
from taut.errors import DataError


def pack_command(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by taut.")],
    lengths: Annotated[
        str,
        typer.Option(
            help="Lengths of sequences: a file with one a line or length,count; or chat-sft, recipe-sft, "
            "longalign-10k, long-mix, wikipedia."
        ),
    ],
    draws: Annotated[int, typer.Option(help="Steps to draw.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    room: Annotated[
        int | None, typer.Option(help="Tokens of a micro-batch under balanced and two-level; default: the plan's.")
    ] = None,
    drop_longer: Annotated[
        bool, typer.Option("--drop-longer", help="Leave out sequences that are longer than the plan's.")
    ] = False,
    search: Annotated[
        float | None,
        typer.Option(help="Seconds to search the plan's space for a plan that suits the lengths, with a bound."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Plan to write that --search found, at the mean work of the lengths (.json).")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the drawn steps: .png, .svg or .pdf.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """What a plan's step takes with packed sequences: first fit, sorted and balanced packing, with a bound."""
    from taut.files import write_atomically
    from taut.packing import pack, plot_packing

    check_plot(plot)
    check_file(out)
    if out is not None and search is None:
        raise DataError(f"--out {out}: has no effect without --search, expected none")
    found = pack(path, lengths, draws=draws, seed=seed, room=room, drop_longer=drop_longer, search=search)
    if out is not None and found.best is not None:
        write_atomically(out, json.dumps(found.best.document) + "\n")
    if plot is not None:
        write_picture(plot, (7.0, 4.0), lambda figure: plot_packing(found, figure.subplots()))
    echo(found, as_json)
