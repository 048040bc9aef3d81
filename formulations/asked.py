"""
What a request asks of the mechanisms, beside what is to price and to run the plan.

A mechanism refuses what it is asked for where the latency model does not price it, a memory network does not know it,
or the stack has no part of it. A refusal is a ``FieldError`` with the option that asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import Stack
from taut.errors import FieldError
from taut.formulations.mechanisms.latency_models import LatencyModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Fixed values, the largest context degree and the schedules that are asked for; and what prices and runs them."""

    fix: Mapping[str, Any]
    max_cp: int | None
    schedules: Sequence[str]
    model: ModelSpec
    stack: Stack
    latency: LatencyModel
    memory: MemoryModel

    def check_mechanism(self, words: str) -> None:
        """Refuse a mechanism that the latency model does not price, or whose memory a network does not know."""
        self.latency.check_mechanism(words)
        self._check_memory(words, "terms")

    def check_order(self, schedule: str) -> None:
        """Refuse a schedule that is priced by its order where nothing prices that."""
        self.latency.check_order(schedule)
        self._check_memory(schedule, "a sum of terms")

    def check_stack(self, name: str) -> None:
        """Refuse a field that is fixed to true where the stack or the latency model lacks it."""
        if self.fix.get(name) and not (getattr(self.stack, name) and self.latency.prices_mechanisms):
            reason = f"no part of {self.stack.name} under {self.latency.name}, expected false, or stack any and step"
            raise FieldError("fix", f"{name}=true", reason)

    def _check_memory(self, words: str, expected: str) -> None:
        if not self.memory.is_sum_of_terms:
            raise FieldError(
                "memory_model", self.memory.name, f"this network does not know {words}, expected {expected}"
            )
