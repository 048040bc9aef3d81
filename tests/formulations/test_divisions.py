"""Families of stated divisions hold what the forms define, and nothing else."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from taut.data.stack import Form
from taut.formulations.divisions import families, is_stated, listed, stated_ranges
from taut.solver.certificate.examined import case_of
from taut.solver.certificate.reference import space as reference
from taut.solver.certificate.reference.space import Case, Choice
from tests.support.small import cluster, model, problem

FORMS: list[list[Form]] = [["even"], ["with-ends"], ["balanced"], ["first-last"], ["even", "first-last"], ["layout"]]
SHAPES = [("1f1b", 1, 1), ("1f1b", 2, 1), ("1f1b", 3, 1), ("1f1b", 4, 1), ("interleaved-1f1b", 2, 2)]
SHAPES += [("interleaved-1f1b", 3, 2), ("interleaved-1f1b", 2, 3), ("zb-v", 2, 2), ("v-half", 3, 2)]


def every(layers: int, chunks: int) -> list[tuple[int, ...]]:
    """Layers of every chunk, of all divisions."""
    cuts = combinations(range(1, layers), chunks - 1)
    return [tuple(np.diff([0, *cut, layers]).tolist()) for cut in cuts]


@pytest.mark.parametrize("forms", FORMS, ids="+".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_families_hold_what_the_forms_define(forms: list[Form], shape: tuple[str, int, int]) -> None:
    """Of all divisions of 6 to 12 layers, the same are stated by families and by definition, and are listed."""
    schedule, pp, vpp = shape
    choice = Choice(pp, 1, 1, vpp, 1, 8, schedule, 0, False)
    for layers in range(6, 13):
        case = case_of(problem(cluster(1, 1), model(layers), divisions=forms))
        given = families(forms, layers, schedule, pp, vpp)
        wanted = [sizes for sizes in every(layers, pp * vpp) if stated(case, choice, sizes)]
        found = [sizes for sizes in every(layers, pp * vpp) if is_stated(np.array(sizes), given)]
        assert found == wanted
        if given is not None:
            known = listed(forms, layers, schedule, pp, vpp)
            assert known is not None and sorted(map(tuple, known.tolist())) == wanted
            ranges = stated_ranges(given, layers)
            ends = [np.cumsum([0, *sizes]) for sizes in wanted]
            assert ranges is not None
            assert all(ranges[np.arange(pp * vpp), end[:-1], end[1:]].all() for end in ends)


def stated(case: Case, choice: Choice, sizes: tuple[int, ...]) -> bool:
    """Whether a division has a form by its definition."""
    ends = np.cumsum([0, *sizes]).tolist()
    return reference.is_stated(case, choice, list(pairwise(ends)))


@pytest.mark.parametrize(
    ("form", "layers", "pp", "sizes"),
    [
        ("balanced", 70, 12, [[6] * 10 + [5] * 2]),
        ("with-ends", 126, 8, [[15, 16, 16, 16, 16, 16, 16, 15]]),
        ("with-ends", 61, 4, []),
        ("even", 80, 8, [[10] * 8]),
        ("even", 126, 8, []),
    ],
)
def test_known_divisions(form: Form, layers: int, pp: int, sizes: list[list[int]]) -> None:
    """BLOOM's 70 layers under DeepSpeed's rule, and Llama-3 405B's 126 with embedding and loss."""
    found = listed([form], layers, "1f1b", pp)
    assert found is not None and found.tolist() == sizes


def test_first_and_last_rank_are_free_in_all_of_their_chunks() -> None:
    """Eight layers on two ranks with two chunks each: each rank's chunks are alike."""
    found = listed(["first-last"], 8, "interleaved-1f1b", 2, 2)
    assert found is not None and found.tolist() == [[1, 3, 1, 3], [2, 2, 2, 2], [3, 1, 3, 1]]
