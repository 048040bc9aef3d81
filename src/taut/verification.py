"""Check a document of any kind: a plan, or a schedule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.data.read import read_json
from taut.data.schedule import FORMAT as SCHEDULE
from taut.planning.plan import Plan
from taut.schedules.found import ScheduleVerification, verify_schedule
from taut.solver.certificate.verify import Verification, verify_plan


def verify(plan: Plan | Mapping[str, Any] | str | Path) -> Verification | ScheduleVerification:
    """
    Check a plan or schedule without trusting the search that made it.

    Parameters
    ----------
    plan
        A plan, the plain values of its document, or the path of a plan or schedule that was written.

    Returns
    -------
    Verification or ScheduleVerification
        Whether it ``holds``, its ``faults``, and the ``gap`` that was derived again.

    Raises
    ------
    DataError
        If this is no such document.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> taut.verify(plan).holds
    True
    """
    if isinstance(plan, Plan):
        return plan.verify()
    if isinstance(plan, Mapping):
        return verify_plan(dict(plan))
    path = Path(plan)
    values = read_json(path, "a plan or schedule")
    return verify_schedule(path) if values.get("format") == SCHEDULE else verify_plan(values, str(path))
