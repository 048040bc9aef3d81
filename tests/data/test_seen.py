"""What runs have been: the least and the most of numbers, every kind, by hand."""

import pytest

from benchmarks.accuracy import joined
from taut.data.calibration import Calibration
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.samples import ConfigurationRow
from taut.data.seen import DEVIATIONS, KINDS, Seen, deviation_beyond, distance_of
from taut.data.stack import borrowed
from taut.errors import DataError


def row(**values: object) -> ConfigurationRow:
    """A run of eight GPUs."""
    given = {"gpu": "h100-80gb", "n_gpus": 8, "hidden": 1024, "layers": 8, "heads": 16, "global_batch": 64, **values}
    return ConfigurationRow.model_validate(given)


RUNS = [
    row(tp=2, pp=2, dp=2, vpp=2, micro_batch=4, zero=1, precision="bf16"),
    row(tp=8, recompute="full", seq=4096, zero=3),
    row(dp=8, recompute="selective", zero=3, dp_shard=4),
]


def test_numbers_have_a_least_and_a_most_and_kinds_are_all_there() -> None:
    """The second run has one holder of its weights, so its ZeRO stage says nothing; the third has two copies."""
    found = Seen.of(RUNS, "fp16")
    assert found.n_gpus == (8, 8) and found.seq == (2048, 4096) and found.micro_batch == (1, 4)
    assert found.tp == (1, 8) and found.pp == (1, 2) and found.vpp == (1, 2) and found.cp == found.ep == (1, 1)
    assert found.zero == [1, 3] and found.recompute == ["none", "selective", "full"]
    assert found.precision == ["bf16", "fp16"] and found.schedule == ["1f1b", "interleaved-1f1b"]
    assert found.copies == [False, True] and found.optimizer_offload == (0.0, 0.0)
    assert Seen.of(RUNS[1:2], "fp16").zero == []


def test_tensor_ranks_of_experts_count_beside_expert_ranks_alone() -> None:
    """Without expert ranks all tensor ranks of a replica share its experts, which is no choice."""
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024}
    assert Seen.of([row(tp=8, **experts)], "bf16").etp == (1, 1)
    assert Seen.of([row(tp=2, dp=4, ep=4, etp=2, **experts)], "bf16").etp == (2, 2)


def test_runs_of_two_campaigns_join() -> None:
    """Ranges widen, and kinds of the second follow those of the first."""
    one, two = Seen.of(RUNS[:1], "bf16"), Seen.of(RUNS[1:2], "fp16")
    assert joined(one, two).tp == (2, 8) and joined(two, one).recompute == ["full", "none"]
    assert joined(one, one) == one


def test_a_record_is_written_and_read_back() -> None:
    """Fields that every run had as usual are left out; a least above its most is refused."""
    found = Seen.of(RUNS[:1], "bf16")
    values = found.model_dump(mode="json")
    assert values["tp"] == [2, 2] and not {"cp", "copies", "optimizer_offload", "mixing"} & set(values)
    assert Seen.parse(values, "a file") == found
    with pytest.raises(DataError, match=r"a file: .*tp: is \[8, 2\], expected the least and the most"):
        Seen.parse({**values, "tp": [8, 2]}, "a file")


def test_calibrations_of_the_catalog_say_what_their_runs_have_been() -> None:
    """Those of experts have seen expert ranks; for another device the runs do not speak, nor for formats of none."""
    for name, each in catalog_calibrations().items():
        assert each.seen is not None, name
        assert (each.seen.ep[1] > 1) == each.experts, name
        none = each.precision is not None and each.precision not in each.seen.precision
        assert none == each.source.startswith(f"no run in {each.precision}"), name
        assert borrowed(each).seen is None
    bf16 = catalog_calibrations()["nemo-h100-bf16"]
    assert Calibration.parse({"name": bf16.name, **bf16.model_dump(mode="json", exclude={"name"})}, "x") == bf16


def test_fields_beyond_are_those_that_no_run_had() -> None:
    """A run itself is beyond in none; another one is in each field that it alone has, as all are without attention."""
    scans = Seen.of(RUNS, "bf16").model_copy(update={"mixing": ["scan"]})
    assert scans.fields_beyond(RUNS[0], "bf16") == {"mixing": 1.0}
    for row in RUNS:
        found = Seen.of([row], "bf16")
        assert found.fields_beyond(row, "bf16") == {}
        for other in RUNS:
            theirs = Seen.of([other], "bf16")
            differ = [
                name for name in Seen.model_fields if getattr(joined(found, theirs), name) != getattr(found, name)
            ]
            assert set(found.fields_beyond(other, "bf16")) == set(differ)


def test_fields_of_one_kind_count_once() -> None:
    """Stages, chunks and schedule err together, scale apart; expert ranks and ZeRO are kinds of their own."""
    pipeline, scale, other = (DEVIATIONS[kind] for kind in ("pipeline", "scale", "any other"))
    assert deviation_beyond({}) == 0.0
    assert deviation_beyond(dict.fromkeys(("pp", "vpp", "schedule"), 1.0)) == pytest.approx(pipeline)
    squares = pipeline**2 + scale**2 + 2 * other**2
    assert deviation_beyond(dict.fromkeys(("pp", "vpp", "n_gpus", "ep", "zero"), 1.0)) == pytest.approx(squares**0.5)
    assert set(KINDS) <= {*Seen.model_fields} and {*KINDS.values(), "any other"} == {*DEVIATIONS}


def test_squares_of_sizes_grow_with_their_doublings() -> None:
    """Twice and 16 times the most are one and four doublings of a size; other numbers are beyond or not."""
    known = Seen.of(RUNS, "bf16")
    most, gpus = known.micro_batch[1], known.n_gpus
    assert distance_of("micro_batch", 2 * most, known.micro_batch) == 1.0
    assert distance_of("micro_batch", 16 * most, known.micro_batch) == 4.0
    assert [distance_of("n_gpus", size, gpus) for size in (gpus[0] // 4, 8 * gpus[1])] == [0.0, 3.0]
    assert distance_of("pp", 64 * known.pp[1], known.pp) == 1.0
    assert deviation_beyond({"micro_batch": 4.0}) == pytest.approx(2 * DEVIATIONS["micro-batch"])
