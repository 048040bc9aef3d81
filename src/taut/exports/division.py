r"""
Megatron-LM's flags for a division of the layers over pp ranks with vpp chunks each.

An even division needs at most the layers of a chunk. Any other is a layout, unless the plan is for a stack without
layouts. There

(1) embedding, loss or both count as a layer (``--account-for-...-in-pipeline-split``), and all chunks but for these
    have as many; or
(2) the first and the last rank have layers of their own, spread evenly over their chunks, and the others share the
    rest.

Source: megatron/training/arguments.py and megatron/core/transformer/transformer_layer.py of August 2026.

In a layout, ``--pipeline-model-parallel-layout``, a letter is a part of the model:
``E`` the embedding, ``t`` a transformer layer, ``m`` a further token's prediction, ``L`` final norm, head and loss.
``|`` separates chunks, in the order in which a micro-batch visits them; chunk i lies on pipeline rank i mod pp. ``t*3``
is ``ttt``, and ``(t*2|)*3`` is ``t*2|t*2|t*2|``. Source: megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product

from taut.errors import DataError
from taut.exports.architecture import Flags

REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([EtmL])\*(\d+)")
MOST_LETTERS = 100_000
"""Letters beyond which a layout is no model's."""


def layout_of(layers: tuple[int, ...], further: int = 0) -> str:
    """
    The layout of chunks with some layers each, embedding first and loss last.

    ``layers``: layers of every chunk; ``further``: further tokens that are predicted beside the loss.

    Examples
    --------
    >>> layout_of((19, 21, 21, 19))
    'Et*19|(t*21|)*2t*19L'
    >>> layout_of((4, 4, 0), 1)
    'Et*4|t*4|mL'
    >>> layout_of((3,))
    'Et*3L'
    """
    if len(layers) == 1:
        return f"E{_letters(layers[0])}{_letters(further, 'm')}L"
    parts = [f"E{_letters(layers[0])}|"]
    for size, run in groupby(layers[1:-1]):
        count = len(list(run))
        chunk = f"{_letters(size)}|"
        parts.append(f"({chunk})*{count}" if count > 1 else chunk)
    return "".join(parts) + f"{_letters(layers[-1])}{_letters(further, 'm')}L"


def _letters(size: int, letter: str = "t") -> str:
    return {0: "", 1: letter}.get(size, f"{letter}*{size}")


def layers_of(layout: str) -> tuple[int, ...]:
    """
    Layers of every chunk of a layout.

    Raises ``DataError`` if the text is no layout.

    Examples
    --------
    >>> layers_of("Et*4|(t*4|)*2tmL")
    (4, 4, 4, 1)
    """
    text = layout.replace(",", "").replace(" ", "")
    while found := REPEATED.search(text):
        group, times, letter, count = found.groups()
        repeated = (group or letter) * int(times or count)
        if len(text) + len(repeated) > MOST_LETTERS:
            raise DataError(f"layout {layout[:40]!r}: more than {MOST_LETTERS} letters, expected one for each layer")
        text = text[: found.start()] + repeated + text[found.end() :]
    if not re.fullmatch(r"E?[tm|]*L?", text) or "t" not in text:
        raise DataError(f"layout {layout!r}: expected E, t, m, L, counts such as t*3, groups, and | between chunks")
    return tuple(chunk.count("t") for chunk in text.split("|"))


LAYOUT = "--pipeline-model-parallel-layout"
CHUNK, CHUNKS = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING, LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"


def division_flags(layers: tuple[int, ...], pp: int, forms: Sequence[str] = ("layout",), further: int = 0) -> Flags:
    """
    The flags of a division.

    ``layers``: layers of every chunk; ``forms``: forms of division that the plan's stack states (``taut.data.stack``);
    ``further``: further tokens that are predicted on the last stage.

    Examples
    --------
    >>> division_flags((3, 4, 4, 3), 4, ["with-ends"])
    {'--account-for-embedding-in-pipeline-split': None, '--account-for-loss-in-pipeline-split': None}
    >>> division_flags((2, 3, 2, 3), 2, ["even", "first-last"])["--decoder-last-pipeline-num-layers"]
    '6'
    """
    vpp = len(layers) // pp
    if len(set(layers)) == 1:
        return {CHUNK: str(layers[0])} if vpp > 1 else {}
    chunks: Flags = {CHUNKS: str(vpp)} if vpp > 1 else {}
    ends = _ends_that_count(layers) if "with-ends" in forms else ()
    if "layout" not in forms and ends:
        return dict.fromkeys(ends) | chunks
    if "layout" not in forms and "first-last" in forms:
        return {FIRST: str(sum(layers[::pp])), LAST: str(sum(layers[pp - 1 :: pp]))} | chunks
    return {LAYOUT: layout_of(layers, further)}


def _ends_that_count(layers: tuple[int, ...]) -> tuple[str, ...]:
    """Which of embedding and loss count as a layer, (1); none where no choice makes all chunks alike."""
    first, *between, last = layers
    for embedding, loss in product((1, 0), repeat=2):
        if len({first + embedding, *between, last + loss}) == 1:
            return (EMBEDDING,) * embedding + (LOSS,) * loss
    return ()


def stated_division(flags: Mapping[str, str | None], pp: int, total: int = 0) -> tuple[int, tuple[int, ...]]:
    """Chunks of a stage, and layers of every uneven chunk; ``total`` layers where no flag says, 0: unknown."""
    if layout := flags.get(LAYOUT):
        layers = layers_of(layout)
        if len(layers) % pp:
            raise DataError(f"{LAYOUT} {layout}: {len(layers)} chunks, expected a multiple of {pp} stages")
        return len(layers) // pp, layers
    total = count(flags, "--num-layers") if "--num-layers" in flags else total
    if not total and (asking := {CHUNK, FIRST, LAST, EMBEDDING, LOSS} & set(flags)):
        raise DataError(f"{min(asking)}: expected --num-layers with it")
    vpp, ends = count(flags, CHUNKS), (EMBEDDING in flags) + (LOSS in flags)
    if CHUNK in flags:
        each = count(flags, CHUNK)
        if (total + ends) % (pp * each):
            raise DataError(f"{CHUNK} {each}: expected a divisor of {total + ends} layers over {pp} stages")
        vpp = (total + ends) // (pp * each)
    return vpp, tuple(_uneven(flags, pp, vpp, total)) if {FIRST, LAST, EMBEDDING, LOSS} & set(flags) else ()


def _uneven(flags: Mapping[str, str | None], pp: int, vpp: int, total: int) -> Iterator[int]:
    """Layers of every chunk, (1) or (2)."""
    if {EMBEDDING, LOSS} & set(flags):
        ends, chunks = (int(EMBEDDING in flags), int(LOSS in flags)), pp * vpp
        each, rest = divmod(total + sum(ends), chunks)
        if rest:
            raise DataError(f"--num-layers {total}: {total + sum(ends)} with its ends, expected a multiple of {chunks}")
        yield from (each - ends[0] * (c == 0) - ends[1] * (c == chunks - 1) for c in range(chunks))
        return
    by_rank = _own_ends(flags, pp, total)
    if any(layers % vpp for layers in by_rank):
        raise DataError(f"{CHUNKS} {vpp}: ranks have {', '.join(map(str, by_rank))} layers, expected multiples")
    yield from (layers // vpp for _ in range(vpp) for layers in by_rank)


def _own_ends(flags: Mapping[str, str | None], pp: int, total: int = 0) -> tuple[int, ...]:
    """Layers of ranks where the first or last one has a number of its own, and the others share the rest."""
    own = [count(flags, flag) if flag in flags else None for flag in (FIRST, LAST)]
    middle = pp - sum(size is not None for size in own)
    rest = total - sum(size or 0 for size in own)
    if rest if middle == 0 else middle < 0 or rest <= 0 or rest % middle:
        raise DataError(f"--num-layers {total}: {rest} layers are left for {middle} stages, expected a multiple")
    first, last = ([size] if size else [] for size in own)
    return (*first, *[rest // max(middle, 1)] * middle, *last)


def count(flags: Mapping[str, str | None], flag: str, usual: int = 1) -> int:
    """A number above 0 that a flag states."""
    text = flags.get(flag, str(usual))
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:
        raise DataError(f"{flag} {text!r:.60}: expected a whole number above 0")
    return int(text)
