"""Galvatron's plans: by its own formula and at taut's prices, and one line for a plan that is none of its space."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taut.errors import DataError
from taut.papers.searches.galvatron import GalvatronTable, reproduce_galvatron
from taut.papers.searches.table import reproduce_searches
from tests.support.galvatron_files import NAME, PLAN, by_layer, write_folder

DATA = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "profiles" / "galvatron"


def _table(folder: Path, **changed: Any) -> GalvatronTable:
    write_folder(folder)
    (folder / "gpt_configs" / NAME).write_text(json.dumps({**PLAN, **changed}), encoding="utf-8")
    return reproduce_galvatron(folder, time_limit=5.0)


def test_a_plan_that_recomputes_without_need_is_not_the_best(tmp_path: Path) -> None:
    """
    All fits without recomputation: of 4 times 3 ms of each of 24 layers one falls away, their forward pass.

    A reduction of 20 MiB at 100,000 MiB/s takes 0.2 ms beside a pass, of which a fifth counts, and ZeRO-3's gather of
    weights 0.1 ms. Half of the samples over twice the ways take more than half: 2 replicas are the best.
    """
    (row,) = _table(tmp_path).rows
    assert row.choice == "24 x ZeRO-3 recomputed; ends ZeRO-3" and row.best == "24 x dp; ends dp"
    assert row.predicted_s - row.best_s == pytest.approx(24 * (3e-3 + 0.1e-3), rel=0.01)
    assert row.lower_bound_s == pytest.approx(row.best_s, rel=1e-8) and row.distance > 0.3
    assert row.ours.theirs_s is not None and row.ours.distance is not None and row.ours.distance >= 0


def test_layers_of_different_degrees_are_not_priced_by_taut(tmp_path: Path) -> None:
    """Such a plan has no counterpart."""
    (row,) = _table(tmp_path, tp_sizes_enc=by_layer(1, 2), dp_types_enc=by_layer(1, 0), checkpoint=by_layer(0)).rows
    assert row.ours.theirs_s is None and str(GalvatronTable((row,))).splitlines()[1].rstrip().endswith("-")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chunks": 2}, "spread in a way that the search does not take"),
        ({"pp_deg": 2, "pp_division": "12,12"}, "layers are none that the search takes"),
    ],
)
def test_plans_out_of_the_space_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    """Two micro-batches leave a sample to one of two replicas; two stages need two micro-batches."""
    with pytest.raises(DataError, match=message):
        _table(tmp_path, **changed)


def test_a_plan_beyond_its_memory_is_refused(tmp_path: Path) -> None:
    """The file's name states the memory."""
    folder = write_folder(tmp_path)
    (folder / "gpt_configs" / NAME).rename(folder / "gpt_configs" / NAME.replace("8GB", "1GB"))
    with pytest.raises(DataError, match=r"takes 3077 MiB of a device, expected 1024 at most"):
        reproduce_galvatron(folder)


def test_the_command_prints_the_plan(tmp_path: Path) -> None:
    """A folder with the plan alone is enough, and a name chooses it."""
    _table(tmp_path)
    table = reproduce_searches(tmp_path, only="galvatron gpt2-345m", time_limit=5.0)
    assert table.galvatron is not None and str(table) == str(table.galvatron) and "recomputed" in str(table)
    assert table.as_dict()["galvatron"][0]["distance"] == table.galvatron.rows[0].distance


@pytest.mark.skipif(not DATA.is_dir(), reason="Galvatron's files are not part of the project")
def test_the_shipped_example_is_within_a_tenth_of_a_per_mille_of_the_optimum() -> None:
    """Its own engine prints 1.086046124294213 s for the plan, at revision cea12ff with batch-wise times."""
    (row,) = reproduce_galvatron(DATA, time_limit=10.0).rows
    assert row.predicted_s == pytest.approx(1.086046124294213, rel=1e-12)
    assert (
        0 < row.distance < 1e-4
        and 0 <= row.alike_distance < 1e-8
        and row.best_s == pytest.approx(row.lower_bound_s, rel=1e-8)
    )
