"""
Megatron-LM's words for a division of layers: ``--pipeline-model-parallel-layout``.

A letter is a part of the model: ``E`` the embedding, ``t`` a transformer layer, ``m`` a further token's prediction,
``L`` final norm, head and loss. ``|`` separates chunks, in the order in which a micro-batch visits them; chunk i lies
on pipeline rank i mod pp. ``t*3`` is ``ttt``, and ``(t*2|)*3`` is ``t*2|t*2|t*2|``. Source:
megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from itertools import groupby

from taut.errors import DataError

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
