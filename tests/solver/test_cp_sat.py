"""CP-SAT ends when asked to, and leaves Ctrl-C to those who asked for it."""

import signal

from ortools.sat.python import cp_model

from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.cp_sat import run, running


def pigeons() -> cp_model.CpModel:
    """Fifteen pigeons in fourteen holes, one literal each: refuted by counting, not by search within a minute."""
    model = cp_model.CpModel()
    at = [[model.new_bool_var("") for _ in range(14)] for _ in range(15)]
    for pigeon in at:
        model.add_bool_or(pigeon)
    for hole in zip(*at, strict=True):
        for i, one in enumerate(hole):
            for other in hole[:i]:
                model.add_bool_or(one.negated(), other.negated())
    return model


def slow_solver() -> cp_model.CpSolver:
    """No presolve and no symmetry, so that nothing shortens the search."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False
    solver.parameters.symmetry_level = 0
    solver.parameters.linearization_level = 0
    solver.parameters.max_time_in_seconds = 60.0
    return solver


def test_a_run_ends_when_asked() -> None:
    """The first question is answered with yes: nothing is known by then."""
    assert run(slow_solver(), pigeons(), lambda: True) == cp_model.UNKNOWN


def test_ctrl_c_in_a_run_reaches_the_search() -> None:
    """The signal comes while CP-SAT runs; the request is there, and the run ends by it."""
    with interrupt_requested() as asked:
        questions: list[bool] = []

        def stop() -> bool:
            if not questions:
                signal.raise_signal(signal.SIGINT)
            questions.append(asked())
            return questions[-1]

        assert run(slow_solver(), pigeons(), stop) == cp_model.UNKNOWN
        assert asked()
        assert questions[0]


def test_a_run_ends_with_its_caller() -> None:
    """Whoever looks on and leaves after the first turn ends a run that has no limit of its own."""
    solver = slow_solver()
    solver.parameters.max_time_in_seconds = float("inf")
    looking = running(solver, pigeons())
    next(looking)
    looking.close()
    assert solver.response_proto.status == cp_model.UNKNOWN
