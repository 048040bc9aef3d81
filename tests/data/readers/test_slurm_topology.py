"""Racks from Slurm's topology files: trees and blocks, and what is wrong with some."""

import re
from pathlib import Path

import pytest

from taut.data.readers.slurm_topology import hosts_of, read_slurm_topology
from taut.errors import DataError

TREE = "# fat tree\nSwitchName=s1 Nodes=n[0-1]  # left\nSwitchName=s2 Nodes=n[2-3],m\nSwitchName=top Switches=s[1-2]\n"
BLOCKS = "BlockName=b1 Nodes=n[00-01]\nBlockName=b2 Nodes=n[02-03]\nBlockSizes=2\n"
TREE_YAML = (
    "---\n- topology: default\n  cluster_default: true\n  tree:\n    switches:\n      - switch: top\n"
    "        children: s[1-2]\n      - switch: s1\n        nodes: n[0-1]\n      - switch: s2\n        nodes: n[2-3],m\n"
)
BLOCK_YAML = (
    "- topology: b\n  block:\n    block_sizes: [2]\n    blocks:\n      - block: b1\n        nodes: n[00-01]\n"
    "      - block: b2\n        nodes: n[02-03]\n"
)
DEFAULT_BLOCK = BLOCK_YAML.replace("block:\n", "cluster_default: true\n  block:\n", 1)
SHOWN = (
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[0-1]\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[2-3],m\n"
    "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-3],m Switches=s[1-2]\n"
)
SHOWN_BLOCKS = (
    "BlockName=b1 BlockIndex=0 Nodes=n[00-01] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[02-03] BlockSize=2\n"
    "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[00-03] BlockSize=4\n"
)
WANTED = {"s1": ["n0", "n1"], "s2": ["n2", "n3", "m"]}
OF_BLOCKS = {"b1": ["n00", "n01"], "b2": ["n02", "n03"]}


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("topology.conf", TREE, WANTED),
        ("topology.conf", BLOCKS, OF_BLOCKS),
        ("topology.yaml", TREE_YAML, WANTED),
        ("topology.yaml", BLOCK_YAML, OF_BLOCKS),
        ("topology.conf", 'BlockName=b1 \\\n  Nodes="n[00-01]"\nBlockName=b2 Nodes=n[02-03]\n', OF_BLOCKS),
        ("topology.conf", "# old \\\nBlockName = b1 Nodes=n00,\\\nn01 # \\\nblockname=b2 nodes=n[02-03]\n", OF_BLOCKS),
        ("topology.conf", SHOWN, WANTED),
        ("topology.conf", SHOWN_BLOCKS, OF_BLOCKS),
        ("topology.yaml", TREE_YAML + DEFAULT_BLOCK, WANTED),
        (
            "topology.yaml",
            TREE_YAML.replace("default: true", "default: false") + "- topology: f\n  flat: true\n",
            WANTED,
        ),
        ("topology.yaml", TREE_YAML.replace("default: true", "default: false") + DEFAULT_BLOCK, OF_BLOCKS),
    ],
)
def test_racks_are_leaf_switches_and_blocks(tmp_path: Path, name: str, text: str, wanted: dict[str, list[str]]) -> None:
    """Hosts by rack."""
    (tmp_path / name).write_text(text)
    assert read_slurm_topology(tmp_path / name) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=top Switches=a\n", "names no switch and no block with nodes"),
        ("SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n1\n", "n1 lies behind a and b"),
        ("SwitchName=a Nodes=n0\nSwitchName=a Nodes=n1\n", "a has nodes twice, expected one line of each"),
        ("SwitchName=a Nodes=n0, n1\n", "has the line 'SwitchName=a Nodes=n0, n1', expected SwitchName= or BlockName="),
        ("Include racks.conf\nSwitchName=a Nodes=n0\n", "has the line 'Include racks.conf', expected SwitchName="),
        ("RingName=r Nodes=n[0-3]\n", r"has the line 'RingName=r Nodes=n\[0-3\]', expected SwitchName="),
        ("SwitchName=a Nodes=n[0-x]\n", "expected numbers and ranges"),
        ("SwitchName=a Nodes=n[0-9999999]\n", "expected numbers and ranges"),
    ],
)
def test_wrong_files_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    """What is missing, twice there, or no list of hosts."""
    (tmp_path / "topology.conf").write_text(text)
    with pytest.raises(DataError, match=words):
        read_slurm_topology(tmp_path / "topology.conf")


UNKNOWN = "SwitchName=core Switches=tor[1-2]\nSwitchName=no-topology Nodes=n[3,5]\nSwitchName=tor1 Nodes=n[1-2]\n"
UNKNOWN_YAML = (
    "- topology: t\n  cluster_default: true\n  tree:\n    switches: [{switch: core, children: tor1}, "
    "{switch: no-topology, nodes: 'n[3,5]'}, {switch: tor1, nodes: 'n[1-2]'}]\n"
)


@pytest.mark.parametrize(("name", "text"), [("topology.conf", UNKNOWN), ("topology.yaml", UNKNOWN_YAML)])
def test_nodes_without_a_switch_are_in_no_rack(tmp_path: Path, name: str, text: str) -> None:
    """Topograph's no-topology is no switch: a line names its nodes, and alone it is no topology."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.warns(UserWarning, match=rf"{name}: leaves out 2 nodes of no-topology, .*: \['n3', 'n5'\]"):
        assert read_slurm_topology(path) == {"tor1": ["n1", "n2"]}
    path.write_text(re.sub(r"SwitchName=tor1.*|, {switch: tor1, .*}", "", text))
    with pytest.raises(DataError, match="names no switch and no block with nodes but no-topology, expected Slurm's"):
        read_slurm_topology(path)


def test_short_forms_of_hosts() -> None:
    """Zeros before numbers stay, and names may go on behind the bracket."""
    assert hosts_of("a[8-10]x,b") == ["a8x", "a9x", "a10x", "b"]
    assert hosts_of("r[1-2]n[0-1],c") == ["r1n0", "r1n1", "r2n0", "r2n1", "c"]
    assert hosts_of("switch.1.[1-2]") == ["switch.1.1", "switch.1.2"]


def test_yaml_with_a_list_or_a_default_without_nodes_is_one_line(tmp_path: Path) -> None:
    """A list of nodes is not Slurm's form; where the default is flat, other topologies do not speak for the cluster."""
    path = tmp_path / "topology.yaml"
    path.write_text("- topology: t\n  block:\n    blocks: [{block: b1, nodes: [n0, n1]}]\n")
    with pytest.raises(DataError, match=r"b1 has nodes \['n0', 'n1'\], expected Slurm's short form"):
        read_slurm_topology(path)
    path.write_text("- topology: t\n  tree: {switches: [{nodes: 'n[0-1]'}]}\n")
    with pytest.raises(DataError, match=r"a switch with the nodes 'n\[0-1\]' has no name, expected one"):
        read_slurm_topology(path)
    flat = "- {topology: f, cluster_default: true, flat: true}\n"
    for text in (BLOCK_YAML + flat, flat.replace("true,", "false,", 1) + BLOCK_YAML, flat + DEFAULT_BLOCK):
        path.write_text(text)
        with pytest.raises(DataError, match="topology 'f', the cluster's default, names no switch and no block with"):
            read_slurm_topology(path)
