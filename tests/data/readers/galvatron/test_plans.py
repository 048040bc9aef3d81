"""Plans and profiles of Galvatron's search: what is read, and one line for what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.data.readers.galvatron.profile import Split, read_galvatron_plan, read_galvatron_profile
from taut.data.units import MIB
from taut.errors import DataError
from tests.support.galvatron_files import NAME, PLAN, by_layer, write_folder


def _plan(folder: Path, **changed: Any) -> Path:
    path = folder / NAME
    path.write_text(json.dumps({**PLAN, **changed}), encoding="utf-8")
    return path


def test_a_plan_is_read(tmp_path: Path) -> None:
    """Layers in order, with what the name of the file says."""
    found = read_galvatron_plan(
        _plan(tmp_path, dp_types_enc=by_layer(1, 0), checkpoint=by_layer(1, 0), vsp=1, vtp=2, embed_sdp=0)
    )
    assert (found.model, found.nodes, found.gpus_per_node, found.memory_gib) == ("gpt2-345m", 1, 2, 8)
    assert found.layers == (Split(sharded=True, recompute=True), *[Split()] * 23) and found.division == (24,)
    assert found.vocabulary == Split(2, sequence=True) and (found.vocabulary.tp, found.vocabulary.sp) == (1, 2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pp_division": "12,12"}, "pp_division has 2 stages, expected pp_deg, 1"),
        ({"checkpoint": "1"}, "checkpoint has 1 layers, expected 24"),
        ({"checkpoint": by_layer(1, 2)}, "checkpoint: has '2', expected 0 and 1"),
        ({"tp_sizes_enc": "1,x"}, "tp_sizes_enc: has 'x', expected whole numbers"),
        ({"chunks": 0}, "chunks"),
    ],
)
def test_wrong_plans_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    """One line names the entry."""
    with pytest.raises(DataError, match=message):
        read_galvatron_plan(_plan(tmp_path, **changed))


def test_a_plan_of_another_name_is_refused(tmp_path: Path) -> None:
    """Model, devices and memory stand in the name alone."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN), encoding="utf-8")
    with pytest.raises(DataError, match="expected a name such as galvatron_config"):
        read_galvatron_plan(path)


def test_a_profile_is_read(tmp_path: Path) -> None:
    """Lines through B samples of 2 B + 1 ms; MiB over GB/s of 1000 MiB; an all-gather is half an all-reduce."""
    found = read_galvatron_profile(write_folder(tmp_path), "gpt2-345m", gpus_per_node=2)
    assert found.seq == 128 and found.layer(3.0) == pytest.approx(7e-3)
    assert found.parameters == 40 * MIB and found.activations[2] == 3 * MIB and found.recomputed == MIB
    assert found.rates[2, True] == found.rates[2, False] == 100 * 1000 * MIB
    assert found.gather[2](4 * MIB) == pytest.approx(2e-3) and found.gather[2](2.5 * MIB) == pytest.approx(1.25e-3)
    assert found.exchange[2](4 * MIB) == pytest.approx(4e-3) and found.stage_rates == {2: 50 * 1000 * MIB}


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("computation_profiling_bf16_gpt2-345m_all.json", {}, "layertype_0: has 0 sizes, expected 8 at least"),
        ("memory_profiling_bf16_gpt2-345m_all.json", {"layertype_0_sp": {}}, r"layertype_0_sp: has \[\], expected one"),
        ("memory_profiling_bf16_gpt2-345m_all.json", {}, "has no object layertype_0_sp"),
        ("allreduce_bandwidth_1nodes_2gpus_per_node.json", {}, "has no allreduce_size_2_consec_1"),
        ("overlap_coefficient.json", {"overlap_coe": 0}, "overlap_coe: is 0, expected a number above 0"),
    ],
)
def test_wrong_profiles_are_refused(tmp_path: Path, name: str, changed: dict[str, Any], message: str) -> None:
    """One line names file and entry."""
    folder = write_folder(tmp_path)
    next(folder.glob(f"*/{name}")).write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_galvatron_profile(folder, "gpt2-345m", gpus_per_node=2)
