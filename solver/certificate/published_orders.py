"""
The order of passes that the reference evaluator runs, for every schedule that is priced by its order.

The reference derives interleaved 1F1B, ZB-H1, ZB-H2 and given orders itself. For the published schedules on the V this
module, and this module alone, takes the order from ``taut.formulations.schedules`` as data. Whatever its source, every
order is checked to run each pass once on the device of its chunk; running it shows that no device waits for ever.
"""

from taut.formulations.schedules.plan_orders import order_of as formula
from taut.solver.certificate.reference.orders import Order, check, order_of
from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice


def order_for(case: Case, choice: Choice) -> Order | None:
    """
    Order of a candidate's passes, None where its time is a closed form; it is kept with the case.

    Raises ``DataError`` if the order does not run every pass once on its own device.
    """
    if choice.schedule in CLOSED_FORM:
        return None
    key = "order", choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches, choice.order
    if key not in case.kept:
        order = order_of(choice) or _published(choice)
        check(choice, order)
        case.kept[key] = order
    found: Order = case.kept[key]
    return found


def _published(choice: Choice) -> Order:
    """A published schedule on the V, as data."""
    passes, first, _ = formula(choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches)
    rows = [("FIWB"[kind], chunk, i) for kind, chunk, i in passes.tolist()]
    return [rows[start:end] for start, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
