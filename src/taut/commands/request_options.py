"""
The options of a ``PlanRequest``, each stated once for every command that has it.

``takes_request`` replaces the parameter ``request`` of a command by all of them, ``takes_options`` the parameter
``options`` by some of them, none of which must be given.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import parse_fix

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
        typer.Option(help="Sequence length in tokens; default: the model's, of a config.json its longest up to 8192."),
    ] = None,
    mtp_layers: Annotated[
        int | None,
        typer.Option(help="Multi-token prediction: further tokens, each with a layer of its own next to the head."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Measured layer costs: catalog name or CSV file.")] = None,
    memory_model: Annotated[str | None, typer.Option(help="Catalog name, YAML file, or JSON of a network.")] = None,
    latency_model: Annotated[
        str, typer.Option(help="step, pipette, pipette-printed or amp; for plan also simulated, as with --method.")
    ] = "step",
    overlap_grad_reduce: Annotated[
        bool, typer.Option("--overlap-grad-reduce", help="Reduce gradients during the last backward pass.")
    ] = False,
    overlap_moe_expert_parallel_comm: Annotated[
        bool,
        typer.Option(
            "--overlap-moe-expert-parallel-comm", help="Hide all-to-alls of experts behind another micro-batch."
        ),
    ] = False,
    moe_token_dispatcher: Annotated[
        str | None,
        typer.Option(help="Dispatcher of expert ranks: flex (DeepEP, HybridEP; default), alltoall or allgather."),
    ] = None,
    fp8_dispatch: Annotated[
        bool, typer.Option("--fp8-dispatch", help="Dispatch tokens to experts in fp8, forward.")
    ] = False,
    moe_router_dtype: Annotated[
        str | None, typer.Option(help="Format of router scores, in which allgather sums outputs: fp32 or fp64.")
    ] = None,
    imbalance: Annotated[
        float | None, typer.Option(help="Tokens of the fullest expert rank over the mean; default: 1, even routing.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Fitted coefficients: catalog name or YAML file.")] = None,
    stack: Annotated[
        str | None, typer.Option(help="Framework: catalog name or YAML file; default: megatron-core.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32, fp8, fp8-blockwise, mxfp8 or nvfp4.")] = None,
    grad_precision: Annotated[
        str | None,
        typer.Option(help="Format in which gradients are kept and summed: bf16, fp16 or fp32; default: by precision."),
    ] = None,
    optimizer_offload_fraction: Annotated[
        str | None,
        typer.Option(
            help="Share of the optimizer states in the host's memory, 0 to 1, several, or auto; default: none."
        ),
    ] = None,
    activation_offload_fraction: Annotated[
        str | None,
        typer.Option(help="Share of the activations in the host's memory, 0 to 1, several, or auto; default: none."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Values that must hold, such as tp=8,pp=4,schedule=1f1b.")
    ] = None,
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
    from taut.planning.request import PlanRequest

    given = {**locals(), "fix": parse_fix(fix)}
    return PlanRequest(**{name: given[name] for name in inspect.signature(_request).parameters})


def takes_request(command: Command) -> Command:
    """
    Give a command the options of a request in place of its parameter ``request``, which it takes first.

    ``command``: a command of Typer; its own options stand after the request's.
    """
    shared = inspect.signature(_request).parameters

    def run(**given: Any) -> None:
        request = _request(**{name: given.pop(name) for name in shared})
        command(request, **given)

    return _with_parameters(run, command, "request", list(shared.values()))


def takes_options(*names: str) -> Callable[[Command], Command]:
    """
    Give a command some options of a request in place of its parameter ``options``, the values that were given by name.

    ``names``: parameters of a request; a user may leave out each of them. Returns the decorator of a command of Typer.
    """
    shared = inspect.signature(_request).parameters
    optional = [
        shared[name].replace(default=None) if shared[name].default is inspect.Parameter.empty else shared[name]
        for name in names
    ]

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> None:
            values = {parameter.name: (given.pop(parameter.name), parameter.default) for parameter in optional}
            options = {name: value for name, (value, default) in values.items() if value != default}
            if "fix" in options:
                options["fix"] = parse_fix(options["fix"])
            command(options=options, **given)

        return _with_parameters(run, command, "options", optional)

    return decorate


def _with_parameters(run: Command, command: Command, place: str, shared: list[inspect.Parameter]) -> Command:
    """A function with a command's name, text and parameters, one of them replaced by those that it shares."""
    own = list(inspect.signature(command).parameters.values())
    at = [parameter.name for parameter in own].index(place)
    parameters = [*own[:at], *shared, *own[at + 1 :]]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    # Typer reads the options off this attribute, which stands for a function's own signature.
    run.__dict__["__signature__"] = inspect.Signature(keywords)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
