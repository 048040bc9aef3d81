"""Runs that practitioners reported in public threads, called right. Their figures are printed with ``-s``."""

import pytest

from benchmarks.practitioners import FSDP, REPORTS, Report
from taut.data.units import GIB

MISSED = {"pytorch/torchtitan#1993", "AMD-AGI/Primus#1022"}
"""Runs with a wrong speed: experts without recompute on B200, 37 % too fast, and on MI325X, 29 % (15 are allowed)."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.thread)
def test_reported_runs_are_called_right(report: Report) -> None:
    """Fits or does not, memory and speed; a run that is missed today fails once it is called right."""
    found, pace = report.priced()
    gib = max(found.memory_bytes) / GIB
    print(f"{report.thread}: {gib:.1f} GiB, fits {found.fits}, {pace:.0f} tokens/s a GPU; said {report[-4:-1]}")
    assert report.is_right(found, pace) != (report.thread in MISSED)


def test_states_divided_over_more_gpus_take_sixteen_bytes_a_parameter() -> None:
    """NousResearch/torchtitan#19: from 8 to 128 B200 a run takes 53.15 GiB less, whatever it recomputes."""
    run = REPORTS[0]._replace(model="qwen3-30b-a3b", values=f"{FSDP},ep=8,micro_batch=8,recompute=selective")
    few, many = (run._replace(cluster=f"dgx-b200:{nodes}", batch=64 * nodes).priced()[0] for nodes in (1, 16))
    less = (max(few.memory_bytes) - max(many.memory_bytes)) / GIB
    assert abs(less / (167.93 - 114.78) - 1) <= 0.02
