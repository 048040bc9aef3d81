"""Names where they enter: what is refused, in one line with the place, and what a file without a name is called."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taut.data.catalog.devices import catalog_section
from taut.data.jobs import load_jobs
from taut.data.load import load_calibration, load_cluster, load_costs, load_memory_model, load_model, load_stack
from taut.data.spec import check_name, name_of_file
from taut.errors import DataError

WRONG = ('"a\\"b"', '"a\\nb"', "'$(x)'", "'`x`'", "''", '"\\e[31m"', "'<b>'", "'-x'", "'a '", "a" * 201)
MODEL = "layers: 4\nhidden: 64\nheads: 4\nseq: 128\n"
NODE = "{count: 1, device: a100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 2400}"
FILES: dict[str, tuple[Callable[[str], object], str]] = {
    "model": (load_model, "name: %s\n" + MODEL),
    "cluster": (load_cluster, f"name: %s\nnodes: [{NODE}]\n"),
    "memory": (load_memory_model, "name: %s\nprecision: bf16\n"),
    "stack": (load_stack, "name: %s\ndescription: mine\nsource: here\nschedules: [1f1b]\nzero: [0]\n"),
    "device": (
        load_cluster,
        "nodes: [{count: 1, gpus_per_node: 8, intra_bandwidth_gbps: 2400, device: {name: %s, memory_gib: 80, "
        "peak_tflops: {bf16: 312}, memory_bandwidth_gbytes: 2039}}]\n",
    ),
    "kind": (load_model, "layers: [{kind: %s, hidden: 64, heads: 4, seq: 128}]\n"),
    "jobs": (
        load_jobs,
        "jobs: [{name: %s, steps: 10, rates: {8: 1.0}}]\n",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("what", FILES)
def test_a_hostile_name_is_refused_in_one_line(what: str, name: str, tmp_path: Path) -> None:
    """Quotes, variables, tags, escapes and options, empty and endless ones."""
    read, text = FILES[what]
    (tmp_path / "x.yaml").write_text(text % name)
    with pytest.raises(DataError) as raised:
        read(str(tmp_path / "x.yaml"))
    words = str(raised.value)
    assert "\n" not in words and "x.yaml" in words and "expected a name" in words


def test_a_table_has_names(tmp_path: Path) -> None:
    """Of devices and kinds of layer in its rows."""
    head = "device,kind,tp,micro_batch,seq,recompute,forward_s,input_grad_s,weight_grad_s,activation_bytes\n"
    (tmp_path / "x.csv").write_text(head + "$(x),block,1,1,128,none,1,1,1,1\n")
    with pytest.raises(DataError, match=r"rows\.0\.device"):
        load_costs(str(tmp_path / "x.csv"))


@pytest.mark.parametrize("section", ["models", "clusters", "devices", "stacks", "calibrations", "memory_models"])
def test_names_of_the_catalog_are_names(section: str) -> None:
    """So are usual ones of others."""
    for name in (*catalog_section(section), "dgx-a100:16", "meta-llama/Llama-3-8B", "Größe (80 GB)", "a"):
        assert check_name(name, "here") == name


def test_a_file_without_a_name_has_a_plain_one(tmp_path: Path) -> None:
    """Whatever its own is called."""
    path = tmp_path / '-a "$(b)"\n.yaml'
    path.write_text(MODEL)
    assert load_model(str(path)).name == "a __(b)__"
    assert name_of_file("...") == "unnamed" and len(name_of_file("b" * 250)) == 200
    with pytest.raises(DataError):
        load_calibration(str(path))
