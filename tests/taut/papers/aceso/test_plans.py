"""Tables of plans that Aceso's search found."""

from pathlib import Path

import pytest

from taut.data.units import MIB
from taut.errors import DataError
from taut.papers.searches.aceso import read_operator_plans

TABLE = """# a comment
gpu,system,size,n_gpus,num_layers,hidden,heads,seq,gbs,mbs,ops_per_stage,tp_by_stage,dp_by_stage,recomputed_ops_by_stage,predicted_memory_mb,predicted_step_ms,search_cost_s,measured_step_ms
l4,aceso,1_3B,4,24,2048,32,2048,32,2,150 165,2x150 | 1x165,1x150 | 2x165,140 0,20088.8 19000.0,12873.65,3.2,13000.5
l4,megatron,1_3B,4,24,2048,32,2048,32,2,,,,,,,,
l4,aceso,1_3B,4,24,2048,32,2048,32,1,315,4x315,1x315,0,19000.0,18000,3.2,
"""


def read(tmp_path: Path, text: str) -> list[object]:
    """Plans of a table with this text."""
    path = tmp_path / "plans.csv"
    path.write_text(text, encoding="utf-8")
    return [*read_operator_plans(path)]


def test_plans_of_aceso_are_read_by_stage(tmp_path: Path) -> None:
    """Degrees by stage, milliseconds as seconds, MiB as bytes; other systems are left out, and no run is None."""
    (tmp_path / "plans.csv").write_text(TABLE, encoding="utf-8")
    first, second = read_operator_plans(tmp_path / "plans.csv")
    assert [(s.operators, s.tp, s.dp, s.recomputed) for s in first.stages] == [(150, 2, 1, 140), (165, 1, 2, 0)]
    assert first.stages[1].predicted_bytes == 19000 * MIB
    assert first.predicted_s == pytest.approx(12.87365) and first.measured_s == pytest.approx(13.0005)
    assert second.measured_s is None and (second.micro_batch, len(second.stages)) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("150 165,2x150", "150,2x150", "row 1: lists by stage do not agree"),
        ("2x150 | 1x165", "2x100 1x50 | 1x165", "row 1: lists by stage do not agree"),
        ("12873.65", "fast", "row 1: predicted_step_ms: is 'fast'"),
        ("predicted_step_ms", "step_ms", "row 1: predicted_step_ms: missing"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """File, row, column and value; operators of unlike degrees in a stage are not read."""
    with pytest.raises(DataError, match=message):
        read(tmp_path, TABLE.replace(old, new, 1))
