"""The nearest right name or number for a wrong one."""

import pytest

from taut.data.suggest import adjacent, multiples_around, nearest, one_of

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


def test_numbers_next_to_a_wrong_one() -> None:
    """Below and above, one side alone at an end, and none; multiples leave 0 out."""
    assert adjacent([46, 1, 23, 2], 4) == "2 or 23"
    assert adjacent([8, 4], 16) == "8"
    assert adjacent([], 4) == "none"
    assert multiples_around(10, 4) == [8, 12]
    assert multiples_around(3, 4) == [4]
