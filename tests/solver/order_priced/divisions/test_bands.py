"""Divisions with larger chunks in a row: by hand, and as a start that annealing needs long for."""

from dataclasses import replace

import numpy as np

from taut.formulations.order_division import ChunkProblem
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.order_priced.divisions import bands, quickest_bands
from taut.solver.order_priced.master_rows import least_makespan, least_makespans
from tests.support.small import cluster, model, problem


def interleaved(layers: int, pp: int, vpp: int, micro_batches: int) -> ChunkProblem:
    """Equal layers on equal devices under interleaved 1F1B."""
    fixed = {"pp": pp, "vpp": vpp, "micro_batch": 1}
    given = problem(
        cluster(pp, 1),
        model(layers),
        global_batch=micro_batches,
        latency_model="step",
        schedules=["interleaved-1f1b"],
        max_vpp=vpp,
        fixed=fixed,
        recompute=["none"],
    )

    (choice,) = given.candidates
    return chunked(given, choice, BestLinks(given.links, given.rings))


def test_five_layers_in_four_chunks() -> None:
    """One chunk has two layers, or two have where first or last has one fewer; a chunk never has none."""
    found = np.diff(bands(interleaved(5, 2, 2, 4)), prepend=0).tolist()
    assert found == [[2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2]]


def test_end_chunks_may_have_no_layers_where_embedding_and_head_are_parts() -> None:
    """Of five layers between embedding and head the first or last chunk may have none, an inner one has one or more."""
    given = replace(interleaved(7, 2, 2, 4), ends=1)
    found = np.diff(bands(given), prepend=0).tolist()
    # With one layer fewer at both ends, 7 = 4 + 3 in four chunks: 1 + 1, 2, 2, 1 - 1 layers, and so on.
    assert [2, 2, 2, 1] in found and [1, 2, 2, 2] in found
    assert all(sum(parts) == 7 and min(parts) >= 1 for parts in found)


def test_layers_that_divide_evenly_are_one_division_without_ends() -> None:
    """Eight layers in four chunks: two each, or the ends have one fewer and others in a row one more."""
    found = np.diff(bands(interleaved(8, 2, 2, 4)), prepend=0).tolist()
    assert found[0] == [2, 2, 2, 2]
    assert [1, 3, 2, 2] in found and [1, 3, 3, 1] in found
    assert all(sum(layers) == 8 and min(layers) >= 1 for layers in found)


def test_the_quickest_that_fits_is_taken() -> None:
    """Of 10 layers on 4 x 2 chunks none is quicker; what does not fit is left out, and so is what is beyond a limit."""
    given = interleaved(10, 4, 2, 8)
    seconds = sorted(least_makespans(given, bands(given), 0).tolist())
    (best,) = quickest_bands(given, lambda division: 0)
    assert least_makespan(given, best) == seconds[0] < seconds[-1]
    (second,) = quickest_bands(given, lambda division: int(division == best))
    assert least_makespan(given, second) >= seconds[0] and second != best
    assert not list(quickest_bands(given, lambda division: 1))
    assert not list(quickest_bands(given, lambda division: 0, limit=seconds[0]))
    assert np.isfinite(seconds).all()
