"""Shares of a candidate's optimizer states and activations on hosts: ``reference.candidates`` (15) and (17)."""

from collections.abc import Iterator
from dataclasses import replace

from taut.solver.certificate.reference.space import CLOSED_FORM, Case, Choice


def states_away(case: Case, choice: Choice) -> list[float]:
    """Shares of the optimizer states that the host's memory may have, (15)."""
    listed = case.space.get("optimizer_offload", ())
    found = {each["fraction"] for each in listed if choice.holders == 1 or choice.zero in each["zero"]}
    return sorted(found) if listed else [0.0]


def activations_away(case: Case, choice: Choice) -> Iterator[Choice]:
    """The candidate with each share of its activations that the host's memory may have, (17)."""
    listed = case.space.get("activation_offload", ())
    if not listed or any(not each["fraction"] for each in listed):
        yield choice
    if choice.schedule not in CLOSED_FORM or case.latency_model != "step" or case.memory.network is not None:
        return
    for each in listed:
        found = replace(choice, activation_offload=each["fraction"])
        if each["fraction"] and (choice.pp == 1 or each.get("pipelines", True)) and case.recomputes(found):
            yield found
