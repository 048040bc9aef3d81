"""
Which nodes lie behind which switch, from Slurm's ``topology.conf`` or ``topology.yaml``, trees and blocks.

``SwitchName=s1 Nodes=node[0-15]`` and ``BlockName=b1 Nodes=...`` name nodes; a switch of switches names none. In YAML
the same stands under ``tree.switches`` (``switch``, ``nodes``, ``children``) or ``block.blocks`` (``block``,
``nodes``), as NVIDIA's Topograph writes it; of several topologies the first that is the cluster's default is read, or
the first where none is. A leaf switch or a block is a rack. What ``scontrol show topology`` prints is read too, where
switches of switches name their nodes again. Nodes whose switch Topograph does not know stand behind ``no-topology``:
they are in no rack, and a line says that they are left out. Source: Slurm's manuals of topology.conf and topology.yaml,
src/common/parse_config.c and src/interfaces/topology.c; NVIDIA/topograph, pkg/topology.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from taut.data.cluster import ClusterSpec
from taut.data.read import read_text
from taut.data.spec import shorten
from taut.errors import DataError

EXPECTED = "Slurm's topology.conf or topology.yaml"
MOST_HOSTS = 100_000
NO_TOPOLOGY = "no-topology"
"""Topograph's name for what holds the nodes whose switch is unknown."""
_FIELD = re.compile(r"""([\w.]+)\s*=\s*("[^"]*"|'[^']*'|\S+)""")
_OTHERS = ("blocksizes", "blocklevels", "aggregatedblock")
"""What lines without switches and leaf blocks begin with."""
_HOST = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")


def hosts_of(text: str) -> list[str]:
    """
    Names of hosts in Slurm's short form.

    Examples
    --------
    >>> hosts_of("a[08-10,12],b")
    ['a08', 'a09', 'a10', 'a12', 'b']
    """
    found: list[str] = []
    for name in _HOST.findall(text):
        parts = [[alone] if alone else list(_numbers(numbers)) for numbers, alone in _PART.findall(name)]
        if len(found) + math.prod(map(len, parts)) > MOST_HOSTS:
            raise DataError(f"nodes {text[:40]!r}: more than {MOST_HOSTS} hosts, expected a cluster")
        found += map("".join, product(*parts))
    return found


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) - int(first) > MOST_HOSTS:
            raise DataError(f"nodes [{text[:40]}]: expected numbers and ranges such as 0-15")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1))


def read_slurm_topology(path: Path) -> dict[str, list[str]]:
    """Hosts by leaf switch or block; ``DataError`` if the file names none, or a host lies behind two."""
    text = read_text(path, EXPECTED)
    racks = _of_yaml(text, path) if path.suffix in (".yaml", ".yml") else _of_conf(text, path)
    unknown = racks.pop(NO_TOPOLOGY, [])
    if not racks:
        but = f" but {NO_TOPOLOGY}" if unknown else ""
        raise DataError(f"{path}: names no switch and no block with nodes{but}, expected {EXPECTED}")
    if unknown:
        said = f"leaves out {len(unknown)} nodes of {NO_TOPOLOGY}, whose switch Topograph does not know"
        warnings.warn(f"{path}: {said}: {shorten(unknown)}", UserWarning, stacklevel=2)
    seen: dict[str, str] = {}
    for rack, hosts in racks.items():
        for host in hosts:
            if host in seen:
                raise DataError(f"{path}: {host} lies behind {seen[host]} and {rack}, expected one switch or block")
            seen[host] = rack
    return racks


def _of_conf(text: str, path: Path) -> dict[str, list[str]]:
    """Hosts by switch or block; as in Slurm remarks go first, then lines that end in a backslash are joined."""
    plain = "\n".join(re.sub(r"(?<!\\)#.*", "", line) for line in text.splitlines())
    named = []
    for line in filter(str.strip, re.sub(r"\\[ \t]*\n", "", plain).splitlines()):
        pairs = [(key.lower(), value.strip("\"'")) for key, value in _FIELD.findall(line)]
        (kind, name), fields = (pairs or [("", "")])[0], dict(pairs)
        if kind not in ("switchname", "blockname", *_OTHERS) or _FIELD.sub("", line).strip():
            said = f"has the line {shorten(line.strip())}"
            raise DataError(f"{path}: {said}, expected SwitchName= or BlockName= first, and values without blanks")
        if kind not in _OTHERS and "nodes" in fields and fields.get("level", "0") == "0":
            named.append((name, fields["nodes"]))
    return _by_name(named, path)


def _by_name(named: Iterable[tuple[str, str]], path: Path) -> dict[str, list[str]]:
    """Hosts by the name of a switch or block, none of which may stand twice."""
    found: dict[str, list[str]] = {}
    for name, nodes in named:
        if name in found:
            raise DataError(f"{path}: {name} has nodes twice, expected one line of each switch or block")
        found[name] = hosts_of(nodes)
    return found


def _of_yaml(text: str, path: Path) -> dict[str, list[str]]:
    try:
        values: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DataError(f"{path}: is no YAML, expected {EXPECTED}") from None
    listed_all = values if isinstance(values, list) else [values]
    topologies = [topology for topology in listed_all if isinstance(topology, dict)]
    default = [topology for topology in topologies if topology.get("cluster_default") is True]
    if not topologies:
        return {}
    topology = (default or topologies)[0]
    found: dict[str, list[str]] = {}
    for section, listed, name in (("tree", "switches", "switch"), ("block", "blocks", "block")):
        part = topology.get(section)
        entries = part.get(listed) if isinstance(part, dict) else None
        leaves = (
            [entry for entry in entries if isinstance(entry, dict) and entry.get("nodes") is not None]
            if isinstance(entries, list)
            else []
        )
        for entry in leaves:
            if entry.get(name) is None:
                raise DataError(f"{path}: a {name} with the nodes {shorten(entry['nodes'])} has no name, expected one")
            if not isinstance(entry["nodes"], str):
                said = f"{entry.get(name)} has nodes {str(entry['nodes'])[:40]}"
                raise DataError(f"{path}: {said}, expected Slurm's short form such as n[0-15]")
        found |= _by_name(((str(entry.get(name)), entry["nodes"]) for entry in leaves), path)
    if not found and len(topologies) > 1:
        said = f"{shorten(topology.get('topology'))}, the cluster's default, names no switch and no block with nodes"
        raise DataError(f"{path}: topology {said}; expected cluster_default: true at the one to read")
    return found


def cluster_from_slurm(
    racks: dict[str, list[str]],
    *,
    name: str,
    bandwidth_gbps: float,
    rack_bandwidth_gbps: float | None = None,
    latency_us: float = 5.0,
    **node: Any,
) -> ClusterSpec:
    """Cluster of nodes of stated fields; racks are leaf switches or blocks, at the rate between them unless stated."""
    count = sum(map(len, racks.values()))
    network: dict[str, Any] = {"bandwidth_gbps": bandwidth_gbps, "latency_us": latency_us}
    if len(racks) > 1:
        inside = bandwidth_gbps if rack_bandwidth_gbps is None else rack_bandwidth_gbps
        network["racks"], first = [], 0
        for hosts in racks.values():
            nodes = list(range(first, first + len(hosts)))
            network["racks"].append({"nodes": nodes, "bandwidth_gbps": inside, "latency_us": latency_us})
            first += len(hosts)
    each = {"intra_latency_us": 3.0, **node, "count": count}
    source = f"Slurm's topology: {len(racks)} switches or blocks of {count} nodes; rates and latencies stated"
    return ClusterSpec.parse({"name": name, "nodes": [each], "network": network, "source": source}, name)
