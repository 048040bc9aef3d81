"""
The options of a ``PlanRequest`` as those of a command, from their records (``taut.planning.options``).

``takes_request`` replaces the parameter ``request`` of a command by all of them, ``takes_options`` the parameter
``options`` by those that a verb has, none of which must be given.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from taut.commands.options import parse_fix, parse_seconds

Command = Callable[..., None]
MODEL = typer.Argument(metavar="MODEL", help="Catalog name, our YAML file, or a Hugging Face config.json.")
CLUSTER = typer.Argument(metavar="CLUSTER", help="Catalog name, NAME:NODES, or our YAML file.")


def options_of(verb: str | None = None) -> list[inspect.Parameter]:
    """The options of a request as parameters of Typer: all, or those that a verb of the command line takes."""
    from taut.planning.options import DEFAULTS, OPTIONS, type_of

    return [
        _parameter(name, list[str] | None if name == "fix" else type_of(name), option.help, DEFAULTS)
        for name, option in OPTIONS.items()
        if verb is None or verb in option.verbs
    ]


def _parameter(name: str, kind: Any, help_text: str, defaults: dict[str, Any]) -> inspect.Parameter:
    """A parameter of Typer; a truth value is a flag without a ``--no-`` of its own."""
    flags = ["--" + name.replace("_", "-")] if kind is bool else []
    if name == "time_limit":
        option = typer.Option(help=help_text, parser=parse_seconds, metavar="SECONDS|none")
    else:
        option = typer.Option(*flags, help=help_text)
    default = defaults.get(name, inspect.Parameter.empty)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, option])


def request_parameters() -> list[inspect.Parameter]:
    """Model, cluster and all options of a request as parameters of Typer."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    arguments = [
        inspect.Parameter(name, keyword, annotation=Annotated[str, argument])
        for name, argument in (("model", MODEL), ("cluster", CLUSTER))
    ]
    return [*arguments, *options_of()]


def takes_request(command: Command) -> Command:
    """Give a command the options of a request in place of its parameter ``request``, which it takes first."""
    shared = request_parameters()

    def run(**given: Any) -> None:
        from taut.planning.request import PlanRequest

        values = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(PlanRequest(**values | {"fix": parse_fix(values["fix"])}), **given)

    return _with_parameters(run, command, "request", shared)


def takes_options(verb: str) -> Callable[[Command], Command]:
    """Give a verb its options of a request, all optional, as ``options``: the values that were given by name."""
    empty = inspect.Parameter.empty
    optional = [each.replace(default=None) if each.default is empty else each for each in options_of(verb)]

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
