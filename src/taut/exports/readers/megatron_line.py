"""
A command line of Megatron-LM as values of a configuration.

Flags that say nothing of the strategy are passed over; of those that do, what is not written is Megatron-LM's default:
degrees of 1, experts on all tensor ranks, no distributed optimizer, no recompute, even stages.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from taut.errors import DataError
from taut.exports.architecture import Flags
from taut.exports.layout import layers_of

COUNTS = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "micro_batch": "--micro-batch-size",
}
LAYOUT = "--pipeline-model-parallel-layout"
CHUNK, CHUNKS = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
STRATEGY, COPIES = "--data-parallel-sharding-strategy", "--num-distributed-optimizer-instances"
SHARDS = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def flags_of(text: str) -> Flags:
    """
    Flags and their values of a command line, ``--name value`` or ``--name=value``; of a flag twice the last.

    Raises
    ------
    DataError
        If quotes are not closed.
    """
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise DataError(f"command line: {error}, expected flags such as --tensor-model-parallel-size 8") from None
    found: Flags = {}
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        after = words[place + 1] if place + 1 < len(words) else "--"
        found[name] = value if equals else None if after.startswith("--") else after
    return found


def megatron_values(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """
    What a command line says of the strategy.

    Parameters
    ----------
    flags
        Flags and their values.

    Returns
    -------
    dict
        Values that ``taut.plan`` may fix, ``layers`` of the stages, ``recompute``, and ``global_batch``.

    Raises
    ------
    DataError
        If a value is no number or no layout, or chunks do not divide the layers.
    """
    values: dict[str, Any] = {name: _count(flags, flag) for name, flag in COUNTS.items()}
    chunks, layers = _division(flags, values["pp"])
    values |= {"vpp": chunks, "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b"}
    values |= {"sequence_parallel": "--sequence-parallel" in flags and values["tp"] > 1, "zero": _zero(flags)}
    if "--num-experts" in flags:
        values["ep"] = _count(flags, "--expert-model-parallel-size")
        if values["ep"] > 1:
            values["etp"] = _count(flags, "--expert-tensor-parallel-size", values["tp"])
    values["recompute"] = flags.get("--recompute-granularity") or "none"
    if "--recompute-activations" in flags:
        values["recompute"] = "selective"
    if layers:
        values["layers"] = "|".join(map(str, layers))
    if "--global-batch-size" in flags:
        values["global_batch"] = _count(flags, "--global-batch-size")
    return values


def _count(flags: Mapping[str, str | None], flag: str, usual: int = 1) -> int:
    text = flags.get(flag, str(usual))
    if text is None or not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise DataError(f"{flag} {text!r:.60}: expected a whole number above 0")
    return int(text)


def _zero(flags: Mapping[str, str | None]) -> int:
    if "--use-torch-fsdp2" in flags:
        return 2 if "--torch-fsdp2-no-reshard-after-forward" in flags else 3
    if "--use-megatron-fsdp" not in flags and "--use-custom-fsdp" not in flags:
        return int("--use-distributed-optimizer" in flags)
    named = flags.get(STRATEGY) or "optim_grads_params"
    if named not in SHARDS:
        raise DataError(f"{STRATEGY} {named}: expected one of {', '.join(SHARDS)}")
    return SHARDS[named]


def _division(flags: Mapping[str, str | None], pp: int) -> tuple[int, tuple[int, ...]]:
    """Chunks of a stage, and layers of every chunk where they are not even."""
    if layout := flags.get(LAYOUT):
        layers = layers_of(layout)
        if len(layers) % pp:
            raise DataError(f"{LAYOUT} {layout}: {len(layers)} chunks, expected a multiple of {pp} stages")
        return len(layers) // pp, layers
    if CHUNKS in flags:
        return _count(flags, CHUNKS), ()
    total = _count(flags, "--num-layers") if {CHUNK, FIRST, LAST} & set(flags) else 0
    if CHUNK in flags:
        each = _count(flags, CHUNK)
        if total % (pp * each):
            raise DataError(f"{CHUNK} {each}: expected a divisor of {total} layers over {pp} stages")
        return total // (pp * each), ()
    return 1, _ends(flags, pp, total) if total else ()


def _ends(flags: Mapping[str, str | None], pp: int, total: int) -> tuple[int, ...]:
    """Layers of stages where the first or last one has a number of its own, and the others share the rest."""
    own = [_count(flags, flag) if flag in flags else None for flag in (FIRST, LAST)]
    middle = pp - sum(size is not None for size in own)
    rest = total - sum(size or 0 for size in own)
    if middle < 1 or rest % middle or rest <= 0:
        raise DataError(f"--num-layers {total}: {rest} layers are left for {middle} stages, expected a multiple")
    first, last = ([size] if size else [] for size in own)
    return (*first, *[rest // middle] * middle, *last)
