r"""
Divisions of the layers that a space states, as the reference evaluator tells them.

A candidate's chunks have :math:`n_0, \dots, n_{X-1}` of L layers, and one chunk has all. The space names forms, of
which a division has one at least:

(1) ``even``, all :math:`n_c` are equal;
(2) ``with-ends``, they are so with one more on the first chunk, on the last, or on both;
(3) ``balanced``, they never rise, and differ by one at most;
(4) ``first-last``, chunks of one pipeline rank are equal, and those of all ranks but the first and the last;
(5) ``layout``, any.

Forms are told by their definition from the layers of a division; no list of divisions is needed but to draw samples and
to see whether a candidate has any.
"""

from collections.abc import Iterator, Sequence

from taut.solver.certificate.reference.space import Case, Choice

ANY = "layout"
Layers = tuple[int, ...]
Stages = tuple[tuple[int, int], ...]
"""First layer and end of every chunk."""


def of_parts(choice: Choice, stages: Stages) -> Stages:
    """Stages of layers as stages of parts, embedding before the first layer and head behind the last."""
    if not choice.empty_ends or not stages:
        return stages
    ends = [*(end + 1 for _, end in stages[:-1]), stages[-1][1] + 2]
    firsts = [stages[0][0], *(first + 1 for first, _ in stages[1:])]
    return tuple(zip(firsts, ends, strict=True))


def of_layers(choice: Choice, stages: Stages) -> Stages:
    """Stages of parts as stages of layers."""
    if not choice.empty_ends or not stages:
        return stages
    last = stages[-1][1] - 2
    return tuple((min(max(first - 1, 0), last), min(end - 1, last)) for first, end in stages)


def forms_of(case: Case) -> list[str]:
    """Forms that the space names."""
    forms: list[str] = case.space.get("divisions", [ANY])
    return forms


def is_stated(case: Case, choice: Choice, stages: Sequence[tuple[int, int]]) -> bool:
    """Whether a division into chunks, first layer and end of each, has one of the forms, (1) to (5)."""
    return _is_stated(case, choice, tuple(end - first for first, end in stages))


def _is_stated(case: Case, choice: Choice, layers: Layers) -> bool:
    return len(layers) == 1 or any(_has(form, layers, choice.chunk_device) for form in forms_of(case))


def _has(form: str, layers: Layers, rank: list[int]) -> bool:
    if form == "even":
        return len(set(layers)) == 1
    if form == "with-ends":
        first, *between, last = layers
        return any(len({first + a, *between, last + b}) == 1 for a, b in ((1, 0), (0, 1), (1, 1)))
    if form == "balanced":
        return max(layers) - min(layers) <= 1 and sorted(layers, reverse=True) == list(layers)
    if form == "first-last":
        by_rank: dict[int, set[int]] = {}
        for at, count in zip(rank, layers, strict=True):
            by_rank.setdefault(at, set()).add(count)
        inner = set[int]().union(*(by_rank[at] for at in range(1, max(rank))))
        return len(inner) <= 1 and all(len(counts) == 1 for counts in by_rank.values())
    return form == ANY


def stated(case: Case, choice: Choice) -> Iterator[Layers]:
    """Layers of every chunk of the divisions (1) to (4), some of them twice; of the last form none."""
    count, chunks, rank = len(case.model.blocks), choice.pp * choice.vpp, choice.chunk_device
    if chunks == 1:
        yield (count,)
        return
    forms = set(forms_of(case))
    if forms & {"even", "balanced", "with-ends"}:
        whole, more = divmod(count, chunks)
        near = [tuple(whole + (c < more) for c in range(chunks))]
        for first, last in ((1, 0), (0, 1), (1, 1)):
            each = (count + first + last) // chunks
            near.append((each - first, *[each] * (chunks - 2), each - last))
        yield from (one for one in near if sum(one) == count and min(one) > 0 and _is_stated(case, choice, one))
    if "first-last" in forms and count % choice.vpp == 0:
        own = count // choice.vpp
        for between in range(1, own) if choice.pp > 2 else [0]:
            ends = own - between * (choice.pp - 2)
            for first in range(1, ends):
                by_rank = [first, *[between] * (choice.pp - 2), ends - first]
                yield tuple(by_rank[at] for at in rank)


def has_stated(case: Case, choice: Choice) -> bool:
    """Whether the layers have a division of one of the forms."""
    return ANY in forms_of(case) or next(stated(case, choice), None) is not None
