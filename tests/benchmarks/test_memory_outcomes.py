"""Calls of runs that ran or ended out of memory: what fits, what a choice does, and the table of counts."""

import os
from pathlib import Path

import pytest

from benchmarks.memory_outcomes import calls, counted, in_words
from benchmarks.memory_sources import ALL_STATED, RECOMPUTE, ZERO, Source, bridge_rows, recipes_on_hosts, sources
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB

MEASURED = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "measured"
BARE = MemoryModel(overhead_gib=0.0, margin=0.0)


def run(**columns: object) -> ConfigurationRow:
    cells = {"gpu": "a100-80gb", "n_gpus": 8, "hidden": 4096, "layers": 32, "seq": 2048, "tp": 8, "global_batch": 8}
    return ConfigurationRow.parse_cells({name: str(value) for name, value in {**cells, **columns}.items()}, "row")


def test_a_run_fits_by_its_prediction_and_by_prediction_and_margin() -> None:
    """One run under margins that leave it room, and that do not: both calls differ by the margin alone."""
    (free,) = calls(Source("a", BARE, []), [run()])
    tight = BARE.model_copy(update={"margin_gib": 80 - free.needed / GIB + 1})
    (kept,) = calls(Source("a", tight, []), [run()])
    assert (free.fits, free.with_margin) == (True, True)
    assert (kept.fits, kept.with_margin) == (True, False)
    assert kept.needed == free.needed and f"{free.needed / GIB:.1f} of 79.2 GiB" in in_words(free)


@pytest.mark.parametrize(("choices", "expected"), [(ALL_STATED, False), (RECOMPUTE, True)])
def test_what_is_left_open_is_chosen_in_favour(choices: tuple[dict[str, object], ...], expected: bool) -> None:
    """A run too large without recompute fits with it, where the source does not say."""
    large = run(micro_batch=64, global_batch=64)
    (found,) = calls(Source("a", BARE, [], choices=choices), [large])
    assert found.fits is expected


def test_runs_out_of_memory_are_refused_where_no_choice_fits() -> None:
    """One GPU does not hold 20 bytes of each of 7 billion parameters, whatever ZeRO's stage."""
    whole = {"n_gpus": 1, "tp": 1}
    source = Source("out", BARE, [run()], [run(**whole), run()], choices=ZERO, open="ZeRO")
    first, together = counted([source])
    assert first == {
        **{"runs": "out", "left open": "ZeRO", "ran": 1, "called fit": 1, "with margin": 1},
        **{"out of memory": 2, "refused": 1, "refused with margin": 1},
        **{"margin GiB": 0.0, "memory stated": 0, "mean error %": "-", "lowest %": "-", "within margin %": "-"},
    }
    assert together["runs"] == "together" and together["refused"] == 1


def test_what_a_run_took_is_compared_with_its_prediction() -> None:
    """Runs that took a tenth more and a fifth less than predicted: the first is beyond a margin of 1 GiB."""
    model = BARE.model_copy(update={"margin_gib": 1.0})
    (needed,) = (call.needed for call in calls(Source("a", model, []), [run()]))
    ran = [run(measured_bytes=needed * share) for share in (1.1, 0.8)] + [run()]
    first, _ = counted([Source("a", model, ran)])
    assert (first["ran"], first["memory stated"], first["within margin %"]) == (3, 2, 50.0)
    assert first["margin GiB"] == pytest.approx(1.0)
    assert first["lowest %"] == pytest.approx(100 * (1 / 1.1 - 1))
    assert first["mean error %"] == pytest.approx(100 * ((1 - 1 / 1.1) + 0.25) / 2)


def test_a_recipe_with_layers_on_hosts_keeps_the_others(tmp_path: Path) -> None:
    """40 of 80 layers on hosts halve what a run keeps; a run of the summary takes the share of its recipe."""
    recipe = "model,gpu,n_gpus,precision_tag,task,tensor_model_parallel_size,pipeline_model_parallel_size,"
    recipe += "context_parallel_size,micro_batch_size,global_batch_size,seq_length,cpu_offloading_num_layers\n"
    recipe += "llama3_70b,gb200,64,fp8cs,pretrain,1,1,1,2,256,,40\n"
    summary = "kind,system,model,n_gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp\n"
    summary += "Pre-Training Performance,DGX-GB200,LLAMA3_70B,64,FP8,256,2,8192,64,1,1,1,n/a\n"
    (tmp_path / "megatron_bridge_recipes_config.csv").write_text(recipe, encoding="utf-8")
    (tmp_path / "megatron_bridge_h100_b200_gb200.csv").write_text(summary, encoding="utf-8")
    (planned,) = recipes_on_hosts(tmp_path / "megatron_bridge_recipes_config.csv")
    (ran,) = bridge_rows(tmp_path)
    assert ran == planned and ran.zero == 3 and ran.activation_offload_fraction == 0.5
    source = Source("a", BARE, [])
    half, whole = calls(source, [ran, ran.model_copy(update={"activation_offload_fraction": 0.0})])
    assert half.needed < 0.6 * whole.needed


@pytest.mark.parametrize(("container", "stages"), [("26.02.01", 4), ("26.04", 1)])
def test_rows_that_contradict_their_recipe_take_it(tmp_path: Path, container: str, stages: int) -> None:
    """A row of the release whose recipe has four stages of five chunks has them; those of other releases stay."""
    summary = "container,kind,system,model,n_gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp\n"
    summary += f"{container},Pre-Training Performance,DGX-GB300,LLAMA3_70B,64,NVFP4,256,2,8192,0,1,1,1,n/a\n"
    (tmp_path / "megatron_bridge_h100_b200_gb200.csv").write_text(summary, encoding="utf-8")
    recipe = "model,gpu,n_gpus,precision_tag,micro_batch_size,cpu_offloading_num_layers\n"
    (tmp_path / "megatron_bridge_recipes_config.csv").write_text(recipe, encoding="utf-8")
    (row,) = bridge_rows(tmp_path)
    assert (row.pp, row.vpp, row.micro_batch) == ((4, 5, 1) if stages == 4 else (1, 1, 2))


@pytest.mark.proof
@pytest.mark.skipif(not MEASURED.is_dir(), reason="TAUT_SHARED_DATA holds no measured runs")
def test_public_runs_are_called_as_they_went() -> None:
    """All runs out of memory are refused, and of a thousand that ran no more than two are predicted not to fit."""
    together = counted(sources(MEASURED))[-1]
    assert together["refused"] == together["refused with margin"] == together["out of memory"] >= 6
    assert together["ran"] >= 1000
    assert together["called fit"] >= together["ran"] - 2
    assert together["with margin"] >= 0.984 * together["ran"]
