"""Packing rules by hand, and what every packing keeps."""

from itertools import islice, pairwise

import numpy as np
import pytest

from taut.data.lengths import load_lengths
from taut.solver.packing.rules import RULES, Drawn, RuleName, draw_steps, least_rows, pack_by


def step_of(*tokens: int, first_fit: list[int]) -> Drawn:
    return Drawn(np.array(tokens), np.array(first_fit))


def test_rules_by_hand() -> None:
    """
    Sequences of 6, 5, 4, 3, 2 tokens, as they come, in two replicas of two micro-batches of 10 tokens.

    First fit: 6 and 4; 5, 3 and 2. Sorted is the same here. Balanced by tokens: 6; 5; 4; 3 and 2: the fullest first to
    the emptier replica: 6 to replica 0, 5 to 1, (3, 2) to 1, 4 to 0. Two-level: 6, 3 and 2 to replica 0, 5 and 4 to 1;
    there 6 alone, 3 with 2, and 5 apart from 4.
    """
    step = step_of(6, 5, 4, 3, 2, first_fit=[0, 1, 0, 1, 1])
    work = step.tokens.astype(float)
    for rule in RULES[:2]:
        places, had_room = pack_by(rule, step, work, 2, 2, 10, 10)
        assert (places.tolist(), had_room) == ([0, 2, 0, 2, 2], True)
    places, had_room = pack_by("balanced", step, work, 2, 2, 10, 10)
    assert had_room
    assert places.tolist() == [0, 2, 1, 3, 3]
    places, had_room = pack_by("two-level", step, work, 2, 2, 10, 10)
    assert (places.tolist(), had_room) == ([0, 2, 3, 1, 1], True)


def test_without_room_first_fit_stands() -> None:
    """5 + 3 + 2 and 4 + 4 + 2 fill both micro-batches; by length 5 + 4 leaves 1 of 10, and 4 + 3 + 2 leaves no 2."""
    step = step_of(5, 3, 2, 4, 4, 2, first_fit=[0, 0, 0, 1, 1, 1])
    assert pack_by("sorted", step, step.tokens.astype(float), 1, 2, 10, 10)[1] is False
    assert pack_by("sorted", step, step.tokens.astype(float), 1, 2, 11, 11)[1] is True


def test_a_step_is_full_under_first_fit() -> None:
    """The first sequence of the next step has no room in any micro-batch, and none is lost between steps."""
    lengths = load_lengths("chat-sft")
    steps = list(islice(draw_steps(lengths, 3, 8, 8192), 3))
    for now, then in pairwise(steps):
        held = np.bincount(now.first_fit, weights=now.tokens, minlength=8)
        assert held.max() <= 8192
        assert (8192 - held < then.tokens[0]).all()
    stream = np.concatenate([lengths.draw(np.random.default_rng(3), 4096)])
    together = np.concatenate([step.tokens for step in steps])
    assert np.array_equal(together, stream[: len(together)])


@pytest.mark.parametrize("rule", RULES)
def test_every_sequence_is_in_one_micro_batch_with_room(rule: RuleName) -> None:
    """Places exist, and no micro-batch holds more than its tokens; balanced may hold the room that it is given."""
    for step in islice(draw_steps(load_lengths("chat-sft"), 5, 12, 8192), 5):
        for room in (8192, 9000):
            places, _ = pack_by(rule, step, np.asarray(step.tokens**1.5), 3, 4, 8192, room)
            held = np.bincount(places, weights=step.tokens, minlength=12)
            assert len(held) == 12
            assert held.max() <= (room if rule in RULES[2:] else 8192)


def test_balanced_evens_out_the_work() -> None:
    """With some room the fullest replica has less work than under first fit, and under two-level nearly the mean."""
    (step,) = islice(draw_steps(load_lengths("chat-sft"), 1, 64, 8192), 1)
    work = step.tokens / 8192 + (step.tokens / 8192) ** 2
    most = []
    for rule in RULES:
        places, _ = pack_by(rule, step, work, 8, 8, 8192, 10_000)
        most.append(float(np.bincount(places // 8, weights=work, minlength=8).max()))
    assert most[2] < most[0]
    assert most[3] < most[2]
    assert most[3] == pytest.approx(float(work.sum()) / 8, rel=0.01)


def test_rows_by_hand() -> None:
    """Rows of 10: three of 6 need three rows, three of 4 fit beside them, but 5 of them do not; a full one is alone."""
    assert least_rows(np.array([6, 6, 6]), 10) == 3
    assert least_rows(np.array([6, 6, 6, 4, 4, 4]), 10) == 3
    assert least_rows(np.array([7, 7, 7, 4, 4, 4]), 10) == 5
    assert least_rows(np.array([10, 1]), 10) == 2
    assert least_rows(np.array([5, 5, 5]), 10) == 2


def fewest_rows(tokens: list[int], rows: list[int], seq: int) -> int:
    """The fewest rows by trying all: each sequence in any row that is open, or a new one."""
    if not tokens:
        return len(rows)
    options = [k for k, held in enumerate(rows) if held + tokens[0] <= seq]
    tried = [fewest_rows(tokens[1:], [h + tokens[0] * (j == k) for j, h in enumerate(rows)], seq) for k in options]
    return min([*tried, fewest_rows(tokens[1:], [*rows, tokens[0]], seq)])


def test_no_packing_has_fewer_rows() -> None:
    """Three hundred draws of up to seven sequences in rows of 12 tokens; the bound is met in nearly all."""
    met = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        tokens = random.integers(1, 13, random.integers(1, 8))
        bound, best = least_rows(tokens, 12), fewest_rows(tokens.tolist(), [], 12)
        assert bound <= best, seed
        met += bound == best
    assert met > 270
