"""The methods by name, each loaded where it is asked for: CP-SAT and CBC take a while."""

from functools import partial
from importlib import import_module

from taut.solver.methods.outcome import Method

SEARCH = "branch-and-bound"
"""The default, which is no method of this folder (``taut.solver.search``)."""
SIMULATED = "simulated"
"""The best candidates at the prices of ``step``, ranked by their simulated time."""
PROGRAMS = {"cp-sat": "solve_cpsat", "cbc": "solve_cbc"}
BASELINES = {
    "megatron": ("rules", "megatron"),
    "amp": ("amp", "amp"),
    "pipette": ("pipette", "pipette"),
    "hethub": ("hethub", "hethub"),
    "varuna": ("rules", "varuna"),
    "fsdp": ("rules", "fsdp"),
    "random": ("trials", "random_search"),
}
"""Module and function of every baseline."""
MESHES = "meshes"
"""Plans of meshes alone, which are no method of this folder either (``taut.solver.meshes``)."""
NAMES = (SEARCH, MESHES, SIMULATED, *PROGRAMS, *BASELINES)


def method_of(name: str) -> Method:
    """The method of a name other than the default: ``SIMULATED``, or one of ``PROGRAMS`` or ``BASELINES``."""
    if name == SIMULATED:
        from taut.solver.methods.simulated import simulated

        return simulated
    if name in BASELINES:
        module, function = BASELINES[name]
        found: Method = getattr(import_module(f"taut.solver.methods.baselines.{module}"), function)
        return found
    from taut.solver.methods.integer_program import by_program

    backend = getattr(import_module(f"taut.solver.program.{name.replace('-', '_')}"), PROGRAMS[name])
    return partial(by_program, name, backend)
