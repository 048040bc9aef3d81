"""
What Aceso's search decides: micro-batch, stages of operators, devices and degrees of each, what it recomputes.

As the search was run: at most ``most_stages`` stages; 1, 2, 4 or 8 devices each, none across two nodes; one tensor
degree and one number of replicas in a stage; at most as many samples of all replicas as the largest micro-batch.
"""

from dataclasses import dataclass

from taut.papers.aceso.operators import OperatorProfile

MICRO_BATCHES = (1, 2, 4, 8)
STAGE_DEVICES = (1, 2, 4, 8)
MOST_STAGES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AcesoProblem:
    """A model of ``layers`` layers on ``gpus`` devices with ``memory_limit`` bytes, ``gpus_per_node`` a node."""

    profile: OperatorProfile
    layers: int
    gpus: int
    gpus_per_node: int
    global_batch: int
    memory_limit: float
    micro_batches: tuple[int, ...] = MICRO_BATCHES
    most_stages: int = MOST_STAGES

    @property
    def stages(self) -> int:
        """The most stages of a plan."""
        return min(self.gpus, self.most_stages)

    def degrees(self, micro_batch: int) -> list[tuple[int, int]]:
        """Tensor degree and replicas that a stage may have: those that were profiled, on a node."""
        sizes = [size for size in STAGE_DEVICES if size <= min(self.gpus, self.gpus_per_node)]
        pairs = [(tp, size // tp) for size in sizes for tp in STAGE_DEVICES if size % tp == 0]
        profiled = self.profile.operators
        return [(tp, dp) for tp, dp in pairs if micro_batch % dp == 0 and (micro_batch // dp, tp) in profiled]


@dataclass(frozen=True, slots=True)
class AcesoStage:
    """Operators [first, end) of a plan, with tensor degree and replicas."""

    first: int
    end: int
    tp: int
    dp: int
