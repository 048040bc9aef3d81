"""The table of fields: what is written is read back, and every field says what it means and how it stands in words."""

import pytest

from taut.formulations.space import DEFAULTS, FIELDS, FIXES, Candidate, fixable_value

PLAIN = Candidate(2, 4, 2, 1, 1, 8, "1f1b", 1, True)
GIVEN = {
    "order": ("F0 B0",),
    "dp_shard": 2,
    "uniform_recompute": "full",
    "cp": 2,
    "ep": 8,
    "etp": 1,
    "cp_comm": "a2a",
    "empty_ends": True,
    "optimizer_offload": 0.5,
    "uneven_batch": True,
    "activation_offload": 0.25,
    "recompute_layers": 3,
}


def test_every_field_has_a_meaning_in_a_sentence() -> None:
    """The table has the fields of a candidate in their order, and each meaning ends as a sentence does."""
    assert list(FIELDS) == list(DEFAULTS) == [*Candidate.__slots__]
    assert all(field.meaning.endswith(".") for field in FIELDS.values())


def test_what_is_written_is_read_back() -> None:
    """Seldom fields are left out where they have their default, kinds of context ranks where there is one rank."""
    assert set(PLAIN.as_dict()) == set(DEFAULTS) - set(GIVEN)
    every = Candidate(**{**PLAIN.as_dict(), **GIVEN})
    assert set(every.as_dict()) == set(DEFAULTS)
    assert [Candidate.from_dict(each.as_dict()) for each in (PLAIN, every)] == [PLAIN, every]


def test_a_candidate_in_words_names_what_is_not_usual() -> None:
    """Degrees, micro-batch and schedule always, everything else where it is there."""
    assert str(Candidate(1, 1, 1, 1, 1, 1, "1f1b", 0, False)) == "pp=1 tp=1 dp=1 micro_batch=1 1f1b"
    words = "pp=2 tp=4 cp=2 a2a ep=8 etp=1 dp=2 micro_batch=1 1f1b adapted zero=1 dp_shard=2 sp uneven batch"
    words += " offload=0.5 activation_offload=0.25 recompute=full recompute_layers=3"
    assert str(Candidate(**{**PLAIN.as_dict(), **GIVEN})) == words


@pytest.mark.parametrize(("name", "right", "wrong"), [("dp", 4, 3), ("zero", 3, True), ("schedule", "gpipe", "zbv")])
def test_a_rule_says_what_was_expected(name: str, right: object, wrong: object) -> None:
    """Of 8 devices and 12 sequences: 4 replicas, and not 3; a truth value is no stage of ZeRO."""
    assert FIXES[name].expected(right, 12, 8) is None
    assert FIXES[name].expected(wrong, 12, 8)


def test_fixed_values_are_those_of_groups() -> None:
    """Without expert ranks their tensor ranks are all; copies are there where something is shared."""
    assert fixable_value(PLAIN, "etp") == 4
    assert fixable_value(PLAIN, "dp_shard") is None
    assert fixable_value(PLAIN, "dp_shard", {"zero": 1}) == 2
