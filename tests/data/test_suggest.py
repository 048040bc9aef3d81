"""The nearest right name for a wrong one."""

import pytest

from taut.data.suggest import nearest, one_of

KNOWN = ("llama3-8b", "llama3-70b", "gpt3-175b", "micro_batch")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lama3-8b", "llama3-8b"),
        ("Llama3-70B", "llama3-70b"),
        ("microbatch", "micro_batch"),
        ("meta-llama/Llama-3-8B", "llama3-8b"),
        ("t5", None),
        ("", None),
    ],
)
def test_nearest_name_is_found_whatever_case_and_dashes(name: str, near: str | None) -> None:
    """Slips of the hand are near, other words are not."""
    assert nearest(name, KNOWN) == near


def test_words_list_every_name_and_the_nearest() -> None:
    """The message lists what is known, and asks only where something is near."""
    assert one_of("bf61", ("bf16", "fp16")) == "one of bf16, fp16; did you mean bf16?"
    assert one_of("x", ("bf16", "fp16")) == "one of bf16, fp16"
