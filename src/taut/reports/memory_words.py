"""What a memory model rests on, and what is on hosts, in words."""

from collections.abc import Mapping
from typing import Any


def memory_words(spec: dict[str, Any]) -> str:
    """Formats, overhead, margin and samples of a memory model, from its plain values."""
    formats = spec["precision"] + (f" with gradients in {kept}" if (kept := spec.get("grad_precision")) else "")
    if share := spec.get("optimizer_offload_fraction"):
        formats += f", {100 * share:.3g}% of the optimizer states on the host"
    if (network := spec["network"]) is not None:
        words = f"{formats}, network of {len(network['layers'])} layers for even partitions"
        return f"{words}, trained on {network['samples']} runs, margin {network['margin']:.1%} of the capacity"
    words = f"{formats}, overhead {spec['overhead_gib']:.3g} GiB"
    words += f" and {each:.3g} a group" if (each := spec.get("group_overhead_gib")) else ""
    if not spec["samples"]:
        return f"{words}, margin {spec['margin']:.0%} of the capacity"
    return (
        f"{words}, fitted on {spec['samples']} runs ({100 * spec['mape']:.1f}% off on unseen ones), margin "
        f"{spec['margin_gib']:.2f} GiB, exceeded with a chance of {100 * spec['level']:.3g}%"
    )


def activations_on_hosts(share: float, space: Mapping[str, Any]) -> str:
    """
    A share of the activations, or of the inputs of the modules that a space names; empty for none.

    Examples
    --------
    >>> activations_on_hosts(0.5, {"offload_modules": ["core_attn", "attn_proj"]})
    "50% of the inputs of core_attn, attn_proj"
    """
    modules = space.get("offload_modules")
    of = f"the inputs of {', '.join(modules)}" if modules else "the activations"
    return f"{100 * share:.3g}% of {of}" if share else ""
