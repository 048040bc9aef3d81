r"""
What expert ranks exchange: copies of a token, bytes and collectives by pass, and what a gather of all tokens holds.

(1) A token crosses once to every other node that has one of its k of E experts, and within a node once to every device
    that has one, but from one of the node's g peers to itself; none of n experts is among k with probability
    (E - n)! (E - k)! / ((E - n - k)! E!). Where a router keeps to K of G groups, one set of them as likely as another,
    the k are of the E K / G experts of a set, and of n those in it; the probability is then the mean over all sets and
    the E / n places. A plain all-to-all sends k rows of a token, each to one of ep devices. Where all tokens of an
    expert group are gathered, each goes to every device of it, evenly: every other node has one of its rows, within a
    node every device but one of the g.
(2) A row is times the imbalance factor, and the first of two exchanges forward is in the dispatch's format.
(3) A gather has no imbalance. Numbers of activations have e bytes, scores s. Forward a token takes e h bytes there,
    with E s of scores and E that say which experts take it, in three collectives, and s h back in one, as outputs are
    summed in the scores' format; backward s h there, and e h and E s back, as nothing goes back of the choice.
(4) A device holds what an expert group gathers in (3), the outputs of all its tokens, and these once more in the
    format in which they are summed, if that is wider.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import comb

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.layers.experts import ExpertsSpec
from taut.solver.certificate.reference.layers import NUMBER_BYTES, expert_row, layers_with_ends
from taut.solver.certificate.reference.space import Case, Choice

SCORE_BYTES = {"fp32": 4, "fp64": 8}


def copies(case: Case, choice: Choice, node: int) -> Floats:
    """Copies of a token of each layer that its device sends within nodes of so many and to other nodes, (2, L), (1)."""
    blocks, ep, kind = layers_with_ends(case, choice), choice.ep, case.dispatch.dispatcher
    found, here = np.zeros((2, len(blocks))), min(choice.ep, node // max(choice.etp, 1))
    for at, layer in enumerate(blocks):
        if layer.experts is None or ep == 1:
            continue
        count, chosen = layer.experts.num_experts, layer.experts.experts_per_token
        if kind == "alltoall":
            found[:, at] = chosen / ep * (here - 1), chosen / ep * (ep - here)
            continue
        owned = count // ep, count // ep * here
        of_device, of_node = (1.0 if kind == "allgather" else 1 - _missed(layer.experts, own) for own in owned)
        found[:, at] = of_device * (ep - ep // here), of_node * (ep // here - 1)
    return found


def both_ways(case: Case, choice: Choice) -> tuple[Floats, Floats]:
    """
    How often half of a layer's all-reduces and one exchange are sent, forward and backward (6, L), (2) and (3).

    Figures are bytes and numbers of all-reduces, bytes of those of experts, bytes of exchanges within nodes and to
    others, and their number.
    """
    dispatch, blocks = case.dispatch, layers_with_ends(case, choice)
    there, back = np.full((2, 6, len(blocks)), 2.0)
    there[3:5] = 1 + dispatch.dispatched
    if dispatch.dispatcher == "allgather":
        number, score = NUMBER_BYTES[case.memory.precision], _score(case)
        experts = np.array([layer.experts.num_experts if layer.experts else 0 for layer in blocks])
        of_row = experts / np.array([number * expert_row(layer) for layer in blocks])
        back[2:5] = 1 + of_row * score + score / number
        there[2:5] = back[2:5] + of_row
        there[5], back[5] = 4, 3
    return there, back


def gathered_bytes(case: Case, choice: Choice, output: Ints) -> Ints:
    """Bytes of a layer's gathers whose output takes so many, by layer, (4)."""
    number, score, found = NUMBER_BYTES[case.memory.precision], _score(case), []
    for layer, whole in zip(layers_with_ends(case, choice), output.tolist(), strict=True):
        tokens = whole // (number * layer.hidden * layer.streams)
        experts = layer.experts.num_experts if layer.experts else 0
        row = (2 * number + (score if score > number else 0)) * expert_row(layer) + experts * (score + 1)
        found.append(row * tokens * choice.expert_group // choice.tp if experts else 0)
    return np.array(found)


@cache
def _missed(experts: ExpertsSpec, own: int) -> float:
    """Mean probability that none of the experts of a place with so many takes a token, (1)."""
    groups, kept, chosen = experts.router_num_groups, experts.router_group_topk, experts.experts_per_token
    left = experts.num_experts // groups * kept
    none = [
        sets * np.prod([(left - held - i) / (left - i) for i in range(chosen)])
        for held, sets in _in_chosen(experts, own)
    ]
    return float(sum(none)) / comb(groups, kept) / (experts.num_experts // own)


def _in_chosen(experts: ExpertsSpec, own: int) -> Iterator[tuple[int, int]]:
    """Of every place with so many experts, how many may be in chosen groups, and in how many sets of these."""
    groups, kept = experts.router_num_groups, experts.router_group_topk
    size = experts.num_experts // groups
    for start in range(0, experts.num_experts, own):
        before = min(-start % size, own)
        whole, behind = divmod(own - before, size)
        ends = [end for end in (before, behind) if end]
        for several, taken in product(range(whole + 1), product((0, 1), repeat=len(ends))):
            if (others := kept - several - sum(taken)) >= 0:
                held = several * size + sum(end * one for end, one in zip(ends, taken, strict=True))
                yield held, comb(whole, several) * comb(groups - whole - len(ends), others)


def _score(case: Case) -> int:
    """Bytes of a score."""
    kind = case.dispatch.router_dtype
    return NUMBER_BYTES[case.memory.precision] if kind is None else SCORE_BYTES[kind]
