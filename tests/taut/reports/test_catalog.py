"""The catalog in words."""

from taut.reports.catalog import catalog_listing, catalog_text


def test_the_catalog_lists_rates_with_their_units() -> None:
    """The listing has the rate of one GPU, one pair and all cards of a node; kinds of nodes are told apart."""
    rows = {row["name"]: row for row in catalog_listing("clusters")["clusters"]}
    rack, mixed = rows["gb300-nvl72"], rows["amp-heterogeneous"]
    assert (rack["gpu_gbps"], rack["pair_gbps"], rack["cards_gbps"]) == ("7200", "800", "57600")
    assert (mixed["gpu_gbps"], mixed["pair_gbps"], mixed["cards_gbps"]) == ("170, 50", "10", "")
    assert "gpu_gbps" in catalog_text(catalog_listing("clusters"))
