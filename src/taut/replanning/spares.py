r"""
How many spare nodes to keep: the expected speed of a plan while nodes fail and are repaired.

A plan trains on n nodes with dp replicas; s more nodes stand by. Every node fails at rate :math:`\lambda` and is back
after 1 / :math:`\mu` on average, in use or not, independently of all others.

(1) The number J of nodes that are down is a birth-death process with rates :math:`(n + s - j) \lambda` and
    :math:`j \mu`. Its stationary distribution is binomial: :math:`P(J = j) = {n + s \choose j} p^j (1 - p)^{n + s - j}`
    with :math:`p = \lambda / (\lambda + \mu)`. It depends on the means alone, as each node goes up and down by itself.
(2) With u nodes up the plan has :math:`d(u) = \lfloor \min(u, n)\, dp / n \rfloor` replicas, on :math:`a(u) = \lceil
    d(u)\, n / dp \rceil` nodes, and :math:`X(d)` sequences a second by the evaluator. A *rigid* job waits for all n.
(3) A failure of one of the a nodes in use stops the job for r seconds: to detect it, to restart, and to do again what
    came after the last checkpoint. Between such stops the job runs for :math:`1 / (a \lambda)` on average, so it trains
    :math:`1 / (1 + a \lambda r)` of the time. Stops that other nodes' failures and repairs ask for are left out.
(4) :math:`E(s) = \sum_j P(J = j)\, X(d) / (1 + a \lambda r)` with d and a of :math:`u = n + s - j`.

With :math:`Y = \max_d X(d) / (1 + a_d \lambda r)`,

(5) :math:`E(s') \le Y`, so :math:`E(s') / (n + s') \le Y / (n + s)` for all :math:`s' \ge s`. Counting s upwards, the
    best speed a node is proven once it is at least :math:`Y / (n + s)`;
(6) the fewest spare nodes of a goal g, :math:`E(s) \ge g X(dp)`, are the first that reach it. None does if
    :math:`g X(dp) > Y`.

Published figures. Llama 3 405B on 16,384 H100 (The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.4): 466
interruptions in 54 days, 419 of them unexpected, above 90 % of the time effective. So a GPU has 54 x 16,384 / 419 days
between unexpected interruptions, and an interruption cost at most 0.1 x 54 days / 466 = 16.7 minutes.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from taut.errors import FieldError
from taut.planning.plan import Plan
from taut.words import percent, text_table

GPU_DAYS = 54 * 16_384 / 419
"""Days between unexpected interruptions of one GPU, of Llama 3."""
LOST_MINUTES = 0.1 * 54 * 24 * 60 / 466
"""Minutes of an interruption at most, of Llama 3."""
REPAIR_HOURS = 24.0
"""Hours until a node is back: an assumption, as operators publish none."""
MOST_SPARES = 10_000
SHOWN_BEYOND = 2
"""Rows behind the last one that is best at something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareCount:
    """One number of spare nodes: chance that all run, (4) in sequences a second, as a share, and that a node."""

    spares: int
    all_up: float
    speed: float
    share: float
    per_node: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """
    Expected speeds by spare nodes.

    ``best`` has the most speed a node, proven for every number by (5); ``enough`` is the fewest that reach the goal,
    None where no goal is set or no number reaches it. ``most_share`` is Y / X(dp), which no number exceeds.
    """

    nodes: int
    node_days: float
    repair_hours: float
    lost_minutes: float
    goal: float | None
    rigid: bool
    best: int
    enough: int | None
    most_share: float
    counts: tuple[SpareCount, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"counts": [asdict(each) for each in self.counts]}

    def __str__(self) -> str:
        """Rates, the best numbers, and a line for each."""
        waits = "waits for all nodes" if self.rigid else "goes on with the replicas that are left"
        job = 1 / (self.nodes / self.node_days)
        lines = [
            f"job         {self.nodes} nodes, {waits}; a failure every {job:.3g} days",
            f"rates       a node fails every {self.node_days:.4g} days, is back after {self.repair_hours:g} h, and "
            f"stops the job for {self.lost_minutes:.3g} min",
            f"most speed  a node: {self.best} spare nodes, proven for every number",
        ]
        if self.goal is not None:
            found = f"{self.enough} spare nodes" if self.enough is not None else "no number of spare nodes"
            lines.append(f"goal        {percent(self.goal)} of the plan's speed: {found}")
        lines.append(f"            no number reaches more than {percent(self.most_share)}")
        rows: list[tuple[str, ...]] = [("spares", "nodes", "all replicas up", "speed", "speed a node", "")]
        last = max(self.best, self.enough or 0) + SHOWN_BEYOND
        for each in self.counts[: last + 1]:
            marks = ["best"] * (each.spares == self.best) + ["goal"] * (each.spares == self.enough)
            shares = (percent(value, places=2) for value in (each.all_up, each.share, each.per_node))
            rows.append((str(each.spares), str(self.nodes + each.spares), *shares, ", ".join(marks)))
        return "\n".join([*lines, "", text_table(rows)])


def expected_speeds(
    speeds: Sequence[float], nodes: int, spares: int, down: float, stop: float, *, rigid: bool = False
) -> tuple[float, float]:
    """E(s) of (4), of speeds X(0) to X(dp), p of (1) ``down``, ``stop`` of (3), and the chance that all run."""
    whole, found, complete = nodes + spares, 0.0, 0.0
    for j in range(whole + 1):
        chance = math.exp(
            math.lgamma(whole + 1)
            - math.lgamma(j + 1)
            - math.lgamma(whole - j + 1)
            + (j * math.log(down) if j else 0.0)
            + (whole - j) * math.log1p(-down)
        )
        replicas = replicas_of(len(speeds) - 1, nodes, whole - j)
        if replicas == len(speeds) - 1:
            complete += chance
        elif rigid:
            continue
        found += chance * trained(speeds, nodes, replicas, stop)
    return found, complete


def replicas_of(dp: int, nodes: int, up: int) -> int:
    """d(u) of (2)."""
    return min(up, nodes) * dp // nodes


def trained(speeds: Sequence[float], nodes: int, replicas: int, stop: float) -> float:
    """Sequences a second of some replicas, stops included, (3)."""
    used = -(-replicas * nodes // (len(speeds) - 1))
    return speeds[replicas] / (1 + used * stop)


def spare_nodes(
    plan: Plan,
    *,
    node_days: float | None = None,
    repair_hours: float = REPAIR_HOURS,
    lost_minutes: float = LOST_MINUTES,
    goal: float | None = None,
    rigid: bool = False,
) -> Spares:
    """
    Count the spare nodes that a plan should have.

    Parameters
    ----------
    plan
        A plan of one degree for all stages, on equal nodes.
    node_days
        Days between failures of a node; by default those of Llama 3's GPUs, by the GPUs of a node.
    repair_hours
        Hours until a node is back.
    lost_minutes
        Minutes that a failure stops the job.
    goal
        Share of the plan's speed that is to be reached, if any.
    rigid
        Whether the job waits for all nodes.

    Returns
    -------
    Spares
        Expected speeds, the number with the most speed a node, and the fewest for the goal.

    Raises
    ------
    DataError
        If an input is wrong; a ``FieldError`` names the argument.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100:4", global_batch=96, fix={"pp": 1, "tp": 1, "micro_batch": 1})
    >>> taut.spare_nodes(plan, node_days=10, goal=0.98).enough
    2
    """
    from taut.provisioning import check_alike
    from taut.replanning.replan import replica_speeds

    cluster = plan.cluster_spec
    check_alike(cluster, "plan", plan.source)
    node_days = GPU_DAYS / cluster.nodes[0].gpus_per_node if node_days is None else node_days
    for name, value in (("node_days", node_days), ("repair_hours", repair_hours), ("lost_minutes", lost_minutes)):
        if not (math.isfinite(value) and value > 0):
            raise FieldError(name, f"{value:g}", "expected a number above 0")
    if goal is not None and not 0 < goal < 1:
        raise FieldError("goal", f"{goal:g}", "expected a share of the plan's speed above 0 and below 1, such as 0.98")
    speeds, nodes = replica_speeds(plan), cluster.num_nodes
    down = 1 / (1 + node_days * 24 / repair_hours)
    stop = lost_minutes / (node_days * 24 * 60)
    most = max(trained(speeds, nodes, d, stop) for d in range(len(speeds)))
    reachable = goal is not None and goal * speeds[-1] <= most
    counts, best, enough = list[SpareCount](), 0, None
    for spares in range(MOST_SPARES):
        proven = counts and most / (nodes + spares) <= counts[best].speed / (nodes + best)
        if proven and (enough is not None or not reachable) and spares > max(best, enough or 0) + SHOWN_BEYOND:
            break
        speed, complete = expected_speeds(speeds, nodes, spares, down, stop, rigid=rigid)
        share = speed / speeds[-1]
        each = SpareCount(
            spares=spares, all_up=complete, speed=speed, share=share, per_node=share * nodes / (nodes + spares)
        )
        counts.append(each)
        best = spares if each.per_node > counts[best].per_node * (1 + 1e-12) else best
        if goal is not None and enough is None and share >= goal:
            enough = spares
    return Spares(
        nodes=nodes,
        node_days=node_days,
        repair_hours=repair_hours,
        lost_minutes=lost_minutes,
        goal=goal,
        rigid=rigid,
        counts=tuple(counts),
        best=best,
        enough=enough,
        most_share=most / speeds[-1],
    )
