"""Shares of states and activations that may be in hosts' memory: ``taut.formulations.space`` (15) and (17)."""

from typing import Annotated

from pydantic import Field

from taut.data.costs import Recompute
from taut.data.memory import OffloadFraction
from taut.data.spec import Spec
from taut.data.stack import ZeroStage


class OptimizerOffload(Spec):
    """A share of the optimizer states that may be in the host's memory, and the ZeRO stages beside it, (15)."""

    fraction: OffloadFraction
    zero: Annotated[list[ZeroStage], Field(min_length=1)]


class ActivationOffload(Spec):
    """A share of the activations that may be in the host's memory, with the recompute beside it, (17)."""

    fraction: OffloadFraction
    recompute: Annotated[list[Recompute], Field(min_length=1)]
    pipelines: bool = True
