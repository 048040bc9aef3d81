r"""
AMP's three searches: what it searches, its method and other baselines, and how far each is from the lower bound.

The paper searches all degrees with :math:`pp \cdot tp \cdot dp = 16`, tensor groups within nodes, and every
micro-batch: 53, 53 and 65 strategies, each with the layers split by its dynamic program. Here each method
(``taut.solver.methods.baselines``) and the branch and bound search the same strategies by AMP's latency model, under
1F1B, without recompute and sharding, which the paper does not vary. The distance of a plan of J seconds from the lower
bound L is J / L - 1.

Stated in the paper: clusters, models, batches; the best measured step of Megatron-LM's heuristic over that of AMP
(tables 3 to 5); seconds of its search on 4 x 4 GPUs (table 2, section 4.6). Assumed: analytic costs, since the paper
prices layers by its own profile, with which ``taut.papers.amp`` prices its trials; latencies of links.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.papers.amp import SETTINGS
from taut.papers.compared import Compared, rows_until_interrupted, times, with_bound
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.methods.named import method_of
from taut.solver.result import Limits
from taut.words import text_table

BASELINES = ("megatron", "amp", "pipette", "hethub", "random")
SPEED_UPS = {"homogeneous": 1.32 / 1.20, "het_cluster": 1.54, "het_model": 1.89 / 1.07}
"""Of AMP's best plan over that of Megatron-LM's heuristic, measured (tables 3 to 5, section 4.4)."""
SEARCH_S = {"homogeneous": 325.6, "het_cluster": 325.6, "het_model": 235.6}
"""Seconds of AMP's search (table 2 for GPT-2 on 4 x 4 GPUs, section 4.6 for TransGAN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Compared):
    """A setting, how many strategies are searched there, and what every method finds."""

    setting: str
    strategies: int


@dataclass(frozen=True, slots=True)
class Table:
    """All settings."""

    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"rows": [_plain(row) for row in self.rows]}

    def __str__(self) -> str:
        """Speed-ups, then distances, then seconds of the searches."""
        methods = list(self.rows[0].step_s)
        speeds = [
            (*_name(row), f"{SPEED_UPS[row.setting]:.2f}x", times(row.speed_up("megatron", "amp"))) for row in self.rows
        ]
        shares = [(*_name(row), *row.distance_cells) for row in self.rows]
        walls = [(*_name(row), f"{SEARCH_S[row.setting]:.0f} s", *row.wall_cells) for row in self.rows]
        named = ("setting", "strategies")
        return "\n\n".join(
            [
                "speed-up of AMP's plan over Megatron-LM's\n" + text_table([(*named, "published", "ours"), *speeds]),
                "distance of every method's plan from the lower bound\n" + text_table([(*named, *methods), *shares]),
                "time of the search\n" + text_table([(*named, "published", *methods), *walls]),
            ]
        )


def _name(row: Row) -> tuple[str, str]:
    return row.setting, str(row.strategies)


def _plain(row: Row) -> dict[str, Any]:
    published = {"speed_up": SPEED_UPS[row.setting], "search_s": SEARCH_S[row.setting]}
    return {
        **asdict(row),
        "distance": row.distances,
        "speed_up": row.speed_up("megatron", "amp"),
        "published": published,
    }


def reproduce_amp_searches(
    setting: str | None = None, limits: Limits | None = None, told: Callable[[str], None] | None = None
) -> Table:
    """
    Search AMP's strategies by every method.

    ``setting``: name of an experiment, one of ``taut.papers.amp.SETTINGS``; all without one; ``limits``: of each
    method; by default a minute; ``told``: called with how far one is. Raises ``FieldError`` if there is no
    such setting.
    """
    if setting is not None and setting not in SETTINGS:
        raise FieldError("setting", setting, f"expected {one_of(setting, SETTINGS)}")
    limits = limits or Limits(time_limit=60.0)
    return Table(rows_until_interrupted([setting] if setting else [*SETTINGS], lambda name: _row(name, limits), told))


def _row(name: str, limits: Limits) -> Row:
    setting = SETTINGS[name]
    request = PlanRequest(
        setting.model,
        setting.cluster,
        global_batch=setting.global_batch,
        latency_model="amp",
        stack="any",
        schedules=["1f1b"],
        max_tp=4,
        fix={"zero": 0, "recompute": "none", "sequence_parallel": False},
    )
    problem = planning_problem(request)
    found = {each: method_of(each)(problem, limits, None) for each in BASELINES}
    return Row(setting=name, strategies=len(problem.candidates), **with_bound(problem, found, limits))
