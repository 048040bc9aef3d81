"""``taut reproduce``: a paper's figures beside ours. One command a paper."""

import json
from pathlib import Path
from typing import Annotated

import typer

reproducer = typer.Typer(help="Set a paper's published figures beside ours.", no_args_is_help=True)


@reproducer.command()
def amp(
    profile: Annotated[Path, typer.Option(help="AMP's layer costs: CSV with file,layer,seconds.")],
    trials: Annotated[
        Path, typer.Option(help="AMP's trials: CSV with mbs,tmp,dp,pp,ds_partition,amp_predicted_s,measured_s.")
    ],
    setting: Annotated[str, typer.Option(help="homogeneous, het_cluster or het_model.")] = "homogeneous",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Price AMP's real trials with our evaluator, beside AMP's own predictions and the measured seconds."""
    from taut.reproduce.amp import reproduce_amp

    found = reproduce_amp(setting, profile, trials)
    typer.echo(json.dumps(found.as_dict()) if as_json else str(found))


@reproducer.command()
def vschedules(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Plan a 98.5B model at sequence 16384 on 40 GPUs under six schedules, beside the published grid search."""
    from taut.reproduce.vschedules import reproduce_vschedules

    found = reproduce_vschedules()
    typer.echo(json.dumps(found.as_dict()) if as_json else str(found))
