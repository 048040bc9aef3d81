"""What a plan breaks: the rule, on which callers decide, and the words that a reader sees."""

from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """The rules of a plan."""

    DIVISION = "the stages divide the layers in order, in a form that the space has"
    RECOMPUTE = "every stage recomputes what its candidate allows"
    DEVICES = "every device is used exactly once"
    TYPES = "a mesh, and a replica of an uneven batch, is on one type of device"
    BATCH = "the replicas divide the micro-batches of a step"
    GROUPS = "a block and the groups in it lie on as few nodes as they can"
    MEMORY = "every stage fits its devices"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a plan breaks; printed, it says in one line where and by how much."""

    rule: Rule
    words: str

    def __str__(self) -> str:
        """Say what is wrong."""
        return self.words
