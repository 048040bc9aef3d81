"""Policies of papers by name, each a new one for a new run."""

from collections.abc import Callable

from taut.solver.jobs.policies.elastic_flow import ElasticFlow
from taut.solver.jobs.policies.fair_share import FairShare
from taut.solver.jobs.policies.first_come import FirstCome
from taut.solver.jobs.policies.shortest_first import ShortestFirst
from taut.solver.jobs.simulate import Policy

POLICIES: dict[str, Callable[[], Policy]] = {
    "elasticflow": ElasticFlow,
    "first-come": FirstCome,
    "shortest-first": ShortestFirst,
    "fair-share": FairShare,
}
