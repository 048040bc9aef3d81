"""What ibstat prints, as a cluster."""

from pathlib import Path

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.cluster import ClusterSpec
from taut.data.readers.ibstat import Port, cluster_from_ibstat, read_ibstat
from taut.errors import DataError


def card(name: str, rate: str, layer: str, state: str = "Active", physical: str = "LinkUp") -> str:
    return (
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tHardware version: 0\n\tPort 1:\n\t\tState: {state}\n"
        f"\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 38\n\t\tLink layer: {layer}\n"
    )


CARDS = "".join(card(f"mlx5_{i}", "400", "InfiniBand") for i in range(4))
CARDS += card("mlx5_4", "100", "Ethernet") + card("mlx5_5", "400", "InfiniBand", "Down", "Polling")


def read(folder: Path, text: str) -> list[Port]:
    (folder / "cards.txt").write_text(text)
    return read_ibstat(folder / "cards.txt")


def cluster(ports: list[Port], link_layer: str = "") -> ClusterSpec:
    device = catalog_devices()["h100-80gb"]
    sizes = {"nodes": 2, "gpus_per_node": 4}
    return cluster_from_ibstat(
        ports, name="c", device=device, intra_bandwidth_gbps=3600, link_layer=link_layer, **sizes
    )


def test_active_ports_of_one_kind_are_the_network(tmp_path: Path) -> None:
    """Four of InfiniBand are up; the one of Ethernet counts if it is asked for, the one that is down never does."""
    ports = read(tmp_path, CARDS)
    assert ports[0] == Port("mlx5_0/1", 400.0, "InfiniBand", True) and not ports[5].is_up
    found = cluster(ports)
    assert (found.num_nodes, found.nodes[0].nic_bandwidth_gbps, found.network.bandwidth_gbps) == (2, 1600, 400)
    assert found.source == (
        "ibstat: 4 InfiniBand ports, 1600 Gb/s; latencies and links inside stated; "
        "1 ports of another kind or rate left out"
    )
    slower = cluster([*ports, Port("mlx5_9/1", 200.0, "InfiniBand", True)])
    assert slower.nodes[0].nic_bandwidth_gbps == 1600
    assert cluster(ports, "Ethernet").nodes[0].nic_bandwidth_gbps == 100
    assert cluster(ports[4:]).nodes[0].nic_bandwidth_gbps == 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ibpanic: no device", "names no port of a card, expected what ibstat prints"),
        (card("a", "", "InfiniBand"), r"a/1 has Rate '' and Link layer 'InfiniBand', expected Gb/s"),
        (
            CARDS + card("mlx5_0", "400", "InfiniBand"),
            "mlx5_0/1 stands 2 times, expected what ibstat prints on one node",
        ),
        (card("a", "400", "Fibre"), "a/1 has Rate '400' and Link layer 'Fibre', expected Gb/s and one of InfiniBand"),
    ],
)
def test_other_texts_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize("prefixes", [("0: ", "1: "), ("node01: ", "node02: "), ("[1,0]<stdout>:", "[1,1]<stdout>:")])
def test_hosts_of_a_launcher_are_read_one_by_one(tmp_path: Path, prefixes: tuple[str, str]) -> None:
    """Lines of two hosts in turn are the ports of either where these are alike, and refused where they are not."""

    def mixed(other: str) -> str:
        texts = CARDS.splitlines(), other.splitlines()
        return "".join(
            f"{prefix}{line}\n"
            for lines in zip(*texts, strict=True)
            for prefix, line in zip(prefixes, lines, strict=True)
        )

    for other_cards in (CARDS, CARDS.replace("mlx5_", "rocep")):
        with pytest.warns(UserWarning, match="names 2 hosts alike, of which one is read: --nodes states how many"):
            assert read(tmp_path, mixed(other_cards)) == read(tmp_path, CARDS)
    first, other = (prefix.rstrip(": ") for prefix in prefixes)
    with pytest.raises(DataError) as caught:
        read(tmp_path, mixed(CARDS.replace("State: Active", "State: Down", 1)))
    four, three = (f"1 of 100 Gb/s Ethernet, {count} of 400 Gb/s InfiniBand" for count in (4, 3))
    assert f"{first} has {four} and {other} {three}, expected hosts with the same ports up" in str(caught.value)
    with pytest.raises(DataError, match=r"mlx5_0/1 of .* stands 2 times, expected what ibstat prints on one node"):
        read(tmp_path, mixed(CARDS) * 2)


def test_a_node_without_a_port_is_refused(tmp_path: Path) -> None:
    ports = read(tmp_path, card("a", "400", "InfiniBand", "Down"))
    with pytest.raises(DataError, match="c: none of 1 ports is Active and LinkUp, expected one"):
        cluster(ports)
    with pytest.raises(DataError, match="none of 1 ports of Ethernet is Active"):
        cluster(ports, "Ethernet")
    with pytest.raises(DataError, match="link layer 'ib': expected one of InfiniBand, Ethernet"):
        cluster(ports, "ib")
