"""
Seconds of the traffic within blocks of devices at least, wherever a candidate's stages are placed.

A block exchanges no faster than on the best links that nodes of its device type offer; a single stage is on all blocks,
so it is as slow as the best block of the slowest node.
"""

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.degrees import BlockShape
from taut.formulations.links import Links
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.block_links import BlockLink, best_block, blocks_of_nodes
from taut.formulations.tables.block_traffic import ALONE, BlockSeconds, Traffic, block_seconds
from taut.formulations.tables.stage_tables import StageTables


def seconds_within(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """
    Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer.

    A single stage is on all blocks, so it is as slow as the best block of the slowest node.
    """
    if candidate.width == 1:
        return ALONE
    links, tables = problem.links, problem.tables(candidate)
    kinds = [problem.type_of_node == kind for kind in range(len(problem.device_types))]
    if candidate.pp == 1 and candidate.width <= links.gpus_per_node.max():
        every = [_at_slowest(tables, links, of_type, candidate.block) for of_type in kinds]
        return BlockSeconds(*(np.stack(figures) for figures in zip(*every, strict=True)))
    return seconds_of_best(problem, candidate)


def seconds_of_best(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer."""
    if candidate.width == 1:
        return ALONE
    tables, kinds = problem.tables(candidate), range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return block_seconds(tables.traffic, tables.forward, each)


def least_within(problem: PlanningProblem, candidate: Candidate, traffic: Traffic) -> Floats:
    """Seconds of some traffic within a block over the best block that nodes of any type offer."""
    if candidate.width == 1:
        return np.zeros(())
    kinds = range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return np.asarray(np.min([traffic.seconds(link) for link in each], axis=0))


def _at_slowest(tables: StageTables, links: Links, of_type: Flags, block: BlockShape) -> tuple[Floats, Floats]:
    """Seconds of the slowest block on nodes of one type at least, where they hold a stage each: the slowest node's."""
    figures = np.unique(blocks_of_nodes(links, block).T[of_type], axis=0)
    each = block_seconds(tables.traffic, tables.forward, (BlockLink(*figure) for figure in figures.tolist()))
    return each.both.max(axis=0), each.forward.max(axis=0)
