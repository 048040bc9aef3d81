"""
The network cards of a node, from what ``ibstat`` prints on it.

A port counts if its state is Active and its physical state LinkUp. Cards of both kinds may be in a node: those of
InfiniBand are then the network, and those of Ethernet serve storage and logins, unless the caller says otherwise. Of
ports of one kind the fastest are the network, as NCCL takes them, and slower ones are left out. One
pair of devices has one card at most, a node has all of them.

Where a launcher put a host or a rank before every line (``srun --label``, pdsh, clush), each has the ports of its node:
one node stands for all if as many ports of every rate are up on each, else the file is refused.
"""

import re
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.read import lines_by_host, read_text
from taut.errors import DataError

LAYERS = ("InfiniBand", "Ethernet")
_CARD = re.compile(r"^\s*CA '([^']+)'", re.MULTILINE)
_PORT = re.compile(r"^\s*Port (\d+):", re.MULTILINE)
_READ = re.compile(r"\s*(CA '|Port \d+:|(State|Physical state|Rate|Link layer):)")
"""Lines that are read; before another no prefix goes."""
_FIELD = r"^[ \t]*{}:[ \t]*(\S*)"


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a card: ``mlx5_0/1``, Gb/s in one direction, what it speaks, and whether it is up."""

    name: str
    rate_gbps: float
    layer: str
    is_up: bool


def read_ibstat(path: Path) -> list[Port]:
    """Ports of all cards of a node; ``DataError`` if there is none, one lacks a rate or layer, or hosts differ."""
    by_host = lines_by_host(read_text(path, "ibstat output"), _READ)
    nodes = {host: _ports("\n".join(line for _, line in lines), host, path) for host, lines in by_host.items()}
    (host, ports), *others = [each for each in nodes.items() if each[1]] or [("", [])]
    if not ports:
        raise DataError(f"{path}: names no port of a card, expected what ibstat prints")
    for other, found in others:
        if (own := _up(ports)) != (its := _up(found)):
            said = f"{host or 'lines without a host'} has {own} and {other or 'lines without a host'} {its}"
            raise DataError(f"{path}: {said}, expected hosts with the same ports up, or one host")
    if others:
        said = f"names {len(others) + 1} hosts alike, of which one is read: --nodes states how many nodes there are"
        warnings.warn(f"{path}: {said}", UserWarning, stacklevel=2)
    return ports


def _up(ports: list[Port]) -> str:
    """How many ports of every layer and rate are up, in words."""
    counts = Counter(f"of {port.rate_gbps:g} Gb/s {port.layer}" for port in ports if port.is_up)
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)) or "no port"


def _ports(text: str, host: str, path: Path) -> list[Port]:
    """Ports of all cards of one host; none where no card is named."""
    parts = _CARD.split(text)
    found: list[Port] = []
    for card, fields in zip(parts[1::2], parts[2::2], strict=True):
        numbered = _PORT.split(fields)
        found += (_port(f"{card}/{n}", each, path) for n, each in zip(numbered[1::2], numbered[2::2], strict=True))
    if len(names := [port.name for port in found]) > len(set(names)):
        twice, of = next(name for name in names if names.count(name) > 1), f" of {host}" if host else ""
        said = f"{twice}{of} stands {names.count(twice)} times"
        raise DataError(f"{path}: {said}, expected what ibstat prints on one node")
    return found


def _port(name: str, fields: str, path: Path) -> Port:
    rate, layer = (_field(fields, field) for field in ("Rate", "Link layer"))
    if not re.fullmatch(r"\d+(\.\d+)?", rate) or layer not in LAYERS:
        said = f"Rate {rate!r} and Link layer {layer!r}"
        raise DataError(f"{path}: {name} has {said}, expected Gb/s and one of {', '.join(LAYERS)}")
    is_up = _field(fields, "State") == "Active" and _field(fields, "Physical state") == "LinkUp"
    return Port(name, float(rate), layer, is_up)


def _field(text: str, name: str) -> str:
    match = re.search(_FIELD.format(name), text, re.MULTILINE)
    return match[1] if match else ""


def cluster_from_ibstat(
    ports: list[Port], *, name: str, nodes: int, link_layer: str = "", latency_us: float = 5.0, **node: Any
) -> ClusterSpec:
    """Cluster of nodes with these cards; ``link_layer``: InfiniBand or Ethernet, by default the first that is up."""
    if link_layer and link_layer not in LAYERS:
        raise DataError(f"link layer {link_layer!r}: expected one of {', '.join(LAYERS)}")
    layers = [layer for layer in LAYERS if any(port.is_up and port.layer == layer for port in ports)]
    layer = link_layer or next(iter(layers), "")
    rates = [port.rate_gbps for port in ports if port.is_up and port.layer == layer]
    rates = [rate for rate in rates if rate == max(rates)]
    if not rates:
        kind = f" of {link_layer}" if link_layer else ""
        raise DataError(f"{name}: none of {len(ports)} ports{kind} is Active and LinkUp, expected one")
    others = sum(port.is_up for port in ports) - len(rates)
    source = f"ibstat: {len(rates)} {layer} ports, {sum(rates):g} Gb/s; latencies and links inside stated"
    source += f"; {others} ports of another kind or rate left out" if others else ""
    each = {"intra_latency_us": 3.0, **node, "count": nodes, "nic_bandwidth_gbps": sum(rates)}
    network = {"bandwidth_gbps": max(rates), "latency_us": latency_us}
    return ClusterSpec.parse({"name": name, "nodes": [each], "network": network, "source": source}, name)
