"""Micro-batches of the replicas in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.solver.certificate.document import StrategySection


def batch_words(strategy: "StrategySection", each: str = "a pipeline and step") -> str:
    """
    How many micro-batches replicas run, those that run as many together.

    Examples
    --------
    >>> import taut
    >>> batch_words(taut.plan("gpt2-345m", "dgx-a100", global_batch=64, fix={"dp": 8, "micro_batch": 2}).strategy)
    '4 of them a pipeline and step'
    """
    if not strategy.micro_batches:
        return f"{strategy.num_micro_batches} of them {each}"
    from taut.planning.tables import device_ranges

    replicas: dict[int, list[int]] = {}
    for replica, count in enumerate(strategy.micro_batches):
        replicas.setdefault(count, []).append(replica)
    parts = [f"{count} in replicas {device_ranges(held)}" for count, held in sorted(replicas.items())]
    return f"of them {each}: {', '.join(parts)}"
