"""
The options that ``plan`` and ``pareto`` share, each stated once: the flags of a ``PlanRequest``.

``takes_request`` replaces the parameter ``request`` of a command by these options.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from taut.planning.request import PlanRequest

Command = Callable[..., None]


def _request(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Catalog name, our YAML file, or a Hugging Face config.json.")
    ],
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Catalog name, NAME:NODES, or our YAML file.")],
    global_batch: Annotated[int, typer.Option(help="Sequences per step.")],
    seq: Annotated[
        int | None,
        typer.Option(help="Sequence length in tokens, if not the model's: of a config.json its longest, at most 8192."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Measured layer costs: catalog name or CSV file.")] = None,
    memory_model: Annotated[str | None, typer.Option(help="Catalog name, YAML file, or JSON of a network.")] = None,
    latency_model: Annotated[str, typer.Option(help="step, pipette, pipette-printed or amp.")] = "step",
    overlap_grad_reduce: Annotated[
        bool, typer.Option("--overlap-grad-reduce", help="Reduce gradients during the last backward pass.")
    ] = False,
    calibration: Annotated[str | None, typer.Option(help="Fitted coefficients: catalog name or YAML file.")] = None,
    stack: Annotated[
        str | None, typer.Option(help="Framework: catalog name or YAML file; default: megatron-core.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32, fp8, fp8-blockwise, mxfp8 or nvfp4.")] = None,
    grad_precision: Annotated[
        str | None, typer.Option(help="Of kept and summed gradients: bf16, fp16 or fp32; default: by precision.")
    ] = None,
    fix: Annotated[str, typer.Option(help="Values that must hold, such as tp=8,pp=4,schedule=1f1b.")] = "",
    max_tp: Annotated[int | None, typer.Option(help="Largest tensor degree; default: the node size.")] = None,
    max_cp: Annotated[int | None, typer.Option(help="Largest context degree; default: 4096 tokens a rank.")] = None,
    schedules: Annotated[str | None, typer.Option(help="all, or a list; default: 1f1b, gpipe and any fixed.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of a search.")] = None,
    work_limit: Annotated[int | None, typer.Option(help="Refinements of a search: deterministic work.")] = None,
    gap: Annotated[float, typer.Option(help="Relative gap that is good enough, such as 0.01.")] = 1e-6,
    seed: Annotated[int, typer.Option(help="Seed of the annealing.")] = 0,
    workers: Annotated[int, typer.Option(help="Threads; the plan does not depend on them.")] = 2,
) -> "PlanRequest":
    """Build the request of the options."""
    from taut.commands.options import parse_fix
    from taut.planning.request import PlanRequest

    given = {**locals(), "fix": parse_fix(fix)}
    return PlanRequest(**{name: given[name] for name in inspect.signature(_request).parameters})


def takes_request(command: Command) -> Command:
    """
    Give a command the options of a request in place of its parameter ``request``, which it takes first.

    Parameters
    ----------
    command
        A command of Typer; its own options stand after the request's.
    """
    shared, own = inspect.signature(_request).parameters, dict(inspect.signature(command).parameters)
    del own["request"]

    def run(**given: Any) -> None:
        request = _request(**{name: given.pop(name) for name in shared})
        command(request, **given)

    parameters = [*shared.values(), *own.values()]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    # Typer reads the options off this attribute, which stands for a function's own signature.
    run.__dict__["__signature__"] = inspect.Signature(keywords)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
