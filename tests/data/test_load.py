"""Catalog, files and names: what is found, and what is refused."""

import json
import os
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from taut.data.catalog.builtin import catalog_clusters, catalog_models
from taut.data.catalog.devices import catalog_devices
from taut.data.load import (
    load_calibration,
    load_cluster,
    load_costs,
    load_memory_model,
    load_model,
)
from taut.data.read import read_json, read_matrix
from taut.data.read_yaml import read_yaml
from taut.data.samples import read_samples
from taut.errors import DataError

NODE = "{count: 2, device: t4-16gb, gpus_per_node: 4, intra_bandwidth_gbps: 50}"


def listed(section: str) -> list[str]:
    text = (files("taut.data") / "catalog" / f"{section}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load(text))


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", listed("models"))
def test_every_listed_model_loads(name: str) -> None:
    """A catalog model loads under its name, says where its shape comes from, and has layers."""
    model = load_model(name)
    assert model == catalog_models()[name]
    assert model.name == name
    assert model.source
    assert model.blocks


@pytest.mark.parametrize("name", listed("clusters"))
def test_every_listed_cluster_loads(name: str) -> None:
    """A catalog cluster loads under its name, says its source, and is made of catalog devices."""
    cluster = load_cluster(name)
    assert cluster == catalog_clusters()[name]
    assert cluster.name == name
    assert cluster.source
    assert all(catalog_devices()[known] == device for known, device in cluster.devices.items())


@pytest.mark.parametrize("name", listed("devices"))
def test_every_listed_device_loads(name: str) -> None:
    """A catalog device has its name, a source and a rate in fp16."""
    device = catalog_devices()[name]
    assert device.name == name
    assert device.source
    assert any(device.peak_flops(precision) for precision in ("fp16", "fp32"))


def test_catalog_holds_what_the_papers_use() -> None:
    """The sizes of the clusters are the papers': 16 x 8 (Pipette), 4 x 4 (AMP), 12, 24, 48 and 96 x 8 (HETHUB)."""
    sizes = {name: (cluster.num_nodes, cluster.num_devices) for name, cluster in catalog_clusters().items()}
    assert sizes["pipette-high-end"] == sizes["pipette-mid-range"] == (16, 128)
    assert sizes["amp-homogeneous"] == sizes["amp-heterogeneous"] == (4, 16)
    assert [sizes[f"hethub-{n}n{8 * n}d"] for n in (12, 24, 48, 96)] == [(12, 96), (24, 192), (48, 384), (96, 768)]


def test_node_count_repeats_a_catalog_node() -> None:
    """``NAME:COUNT`` is that many of the node, under the whole name."""
    cluster = load_cluster("dgx-a100:16")
    assert (cluster.name, cluster.num_nodes, cluster.num_devices) == ("dgx-a100:16", 16, 128)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dgx-a100:0", "cluster 'dgx-a100:0': node count is '0', expected a whole number from 1 to"),
        ("dgx-a100:-2", "node count is '-2'"),
        ("dgx-a100:1.5", "node count is '1.5'"),
        ("dgx-a100:many", "node count is 'many'"),
        ("dgx-a100:²", "node count is '²'"),
        ("dgx-a100:99999999999", "node count is '99999999999'"),
        ("amp-homogeneous:2", "amp-homogeneous has 4 nodes, expected no node count"),
        ("dgx-b999", "cluster 'dgx-b999' is not in the catalog, expected one of dgx-a100, dgx-h100, .* NAME:NODES"),
        ("dgx-h100x8", r"cluster 'dgx-h100x8' is not in the catalog, .*; did you mean dgx-h100:8\?"),
        ("DGX_H10:4", r"did you mean dgx-h100:4\?"),
        ("h100", r"did you mean dgx-h100\?"),
        ("llama3-8b", "'llama3-8b' is a model of the catalog, expected the model first and the cluster second"),
    ],
)
def test_wrong_cluster_names_are_refused(name: str, words: str) -> None:
    """The message says what the name lacks, and which names there are."""
    with pytest.raises(DataError, match=words):
        load_cluster(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lama3-8b", r"model 'lama3-8b' is not in the catalog, .*; did you mean llama3-8b\?"),
        ("Llama3-8B", r"did you mean llama3-8b\?"),
        ("meta-llama/Llama-3-8B", r"did you mean llama3-8b\?"),
        ("dgx-h100:8", "'dgx-h100:8' is a cluster of the catalog, expected the model first and the cluster second"),
        ("x" * 5000, r"model 'xxx.*\.\.\. is not in the catalog, expected one of"),
    ],
)
def test_wrong_model_names_are_refused_with_the_nearest(name: str, words: str) -> None:
    """One line says which name was probably meant, or that the two arguments are swapped."""
    with pytest.raises(DataError, match=words) as caught:
        load_model(name)
    assert "gpt2-345m" not in str(caught.value) or "one of" in str(caught.value)


def test_folders_are_read_by_their_config_or_refused(tmp_path: Path) -> None:
    """A folder of Hugging Face stands for its config.json; any other folder is refused as one."""
    with pytest.raises(DataError, match=r"is a folder without a config\.json"):
        load_model(str(tmp_path))
    for load in (load_cluster, load_calibration, load_memory_model, load_costs):
        with pytest.raises(DataError, match="is a folder, expected"):
            load(str(tmp_path))
    shape = {"n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024, "vocab_size": 50257}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **shape}), encoding="utf-8")
    assert load_model(str(tmp_path)).name == tmp_path.name


def test_unknown_model_is_refused_with_the_known_ones() -> None:
    """The message lists the catalog and the kinds of file."""
    with pytest.raises(
        DataError, match=r"model 'gpt-5' is not in the catalog, expected .*config.json.*; did you mean gpt"
    ):
        load_model("gpt-5")


def test_sequence_length_replaces_the_models_own() -> None:
    """Another sequence length changes nothing else; a model of unlike layers has no single one to replace."""
    assert load_model("gpt2-345m", seq=2048) == load_model("gpt2-345m").model_copy(update={"seq": 2048})
    assert load_model("gpt2-345m", seq=2048).tokens == 2048
    with pytest.raises(DataError, match="gpt2-345m: seq: is 0, expected to be greater than 0"):
        load_model("gpt2-345m", seq=0)
    with pytest.raises(DataError, match="transgan-generator: seq 64 asked for, expected none"):
        load_model("transgan-generator", seq=64)


def test_model_file_takes_its_name_from_the_file(tmp_path: Path) -> None:
    """A YAML file of ours is a model; its name is the file's unless it says otherwise."""
    path = write(tmp_path, "tiny.yaml", "{layers: 2, hidden: 8, heads: 2, seq: 4}")
    assert load_model(path).name == "tiny"
    path = write(tmp_path, "tiny.yml", "{name: other, layers: 2, hidden: 8, heads: 2, seq: 4}")
    assert load_model(path).name == "other"


def test_cluster_file_names_catalog_devices_or_describes_them(tmp_path: Path) -> None:
    """``device`` is a catalog name or a description in place."""
    own = "{name: own, memory_gib: 1, peak_tflops: {bf16: 1}, memory_bandwidth_gbytes: 1}"
    nodes = f"nodes: [{NODE}, {NODE.replace('t4-16gb', own)}]\nnetwork: {{bandwidth_gbps: 10}}\n"
    cluster = load_cluster(write(tmp_path, "mine.yaml", nodes))
    assert cluster.name == "mine"
    assert list(cluster.devices) == ["t4-16gb", "own"]
    with pytest.raises(DataError, match=r"other.yaml: nodes.0.device: is 'b200', expected .*; did you mean b200-180gb"):
        load_cluster(write(tmp_path, "other.yaml", nodes.replace("t4-16gb", "b200")))


def test_matrix_file_is_found_beside_the_cluster_file(tmp_path: Path) -> None:
    """The path of a matrix is relative to the cluster file; header and names are dropped; its unit is stated beside."""
    (tmp_path / "measured").mkdir()
    write(tmp_path, "measured/links.csv", "host,a,b\na,0,3.5\nb,2,0\n")
    text = f"nodes: [{NODE}]\nbandwidth_matrix: measured/links.csv\nbandwidth_unit: GB/s\n"
    matrix = load_cluster(write(tmp_path, "mine.yaml", text)).bandwidth_matrix
    assert matrix is not None
    assert matrix.rows == [[0, 3.5], [2, 0]]
    assert matrix.unit == "GB/s"


@pytest.mark.parametrize(
    ("matrix", "unit", "words"),
    [
        ("0,1\n1,0\n", "", "mine.yaml: bandwidth_unit: missing, expected the unit of links.csv"),
        ("0,1\n1,0\n", "bandwidth_unit: miles", "mine.yaml: bandwidth_matrix.unit: is 'miles', expected"),
        ("0,1\nfast,0\n", "bandwidth_unit: GB/s", "links.csv row 2 column 1: is 'fast', expected a bandwidth"),
        ("0,1\n1\n", "bandwidth_unit: GB/s", "row 1 has 1 entries, expected 2"),
        ("0,-1\n1,0\n", "bandwidth_unit: GB/s", "row 0 column 1 is -1.0, expected a bandwidth > 0"),
        ("0,nan\n1,0\n", "bandwidth_unit: GB/s", "is nan, expected a finite number"),
        ("", "bandwidth_unit: GB/s", "has 0 rows, expected 2"),
        ("0,1,1\n1,0,1\n1,1,0\n", "bandwidth_unit: GB/s", "has 3 rows, expected 2"),
        (f"0,{'1' * 200_000}\n1,0\n", "bandwidth_unit: GB/s", "links.csv: field larger than field limit"),
    ],
)
def test_wrong_matrix_files_are_refused(tmp_path: Path, matrix: str, unit: str, words: str) -> None:
    """A matrix file needs a unit, numbers, and as many rows as nodes or devices."""
    write(tmp_path, "links.csv", matrix)
    path = write(tmp_path, "mine.yaml", f"nodes: [{NODE}]\nbandwidth_matrix: links.csv\n{unit}\n")
    with pytest.raises(DataError, match=words) as caught:
        load_cluster(path)
    assert "\n" not in str(caught.value)


def test_missing_matrix_file_is_named(tmp_path: Path) -> None:
    """The message names the matrix file, not the cluster file alone; a name that no file can have is refused too."""
    text = f"nodes: [{NODE}]\nbandwidth_unit: GB/s\nbandwidth_matrix: "
    with pytest.raises(DataError, match=r"links.csv: No such file or directory, expected a CSV matrix"):
        load_cluster(write(tmp_path, "mine.yaml", text + "links.csv\n"))
    with pytest.raises(DataError, match="expected a CSV matrix"):
        load_cluster(write(tmp_path, "mine.yaml", text + '"links\\0.csv"\n'))


def test_matrix_without_header_keeps_every_number(tmp_path: Path) -> None:
    """A file of numbers alone has neither header nor names to drop."""
    assert read_matrix(Path(write(tmp_path, "links.csv", "0,1\n\n2,0\n"))) == [[0, 1], [2, 0]]


def test_memory_model_file_is_read(tmp_path: Path) -> None:
    """Fields that a memory model file leaves out keep their defaults."""
    memory = load_memory_model(write(tmp_path, "tight.yaml", "{margin: 0.2}"))
    assert (memory.name, memory.margin, memory.overhead_gib) == ("tight", 0.2, 2.0)


LAUGHS = "a: &a [ha, ha]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, r"bad.yaml line 2: alias \*a is not allowed"),
        ("a: 1\nb: 2\na: 3\n", "bad.yaml line 3: key 'a' stands twice"),
        ("nodes: [{count: 1, count: 2}]", "bad.yaml line 1: key 'count' stands twice"),
        ("? [1, 2]\n: 3\n", "bad.yaml line 1: a key is not a plain word"),
        ("[" * 5000 + "]" * 5000, "bad.yaml: is nested too deeply"),
        ("a: [1, 2\n", "bad.yaml line 2: expected ',' or ']'"),
        ("a: !!python/object:os.system {}\n", "bad.yaml line 1: could not determine a constructor"),
        ("a: 2024-13-45\n", r"bad.yaml: holds a value of the wrong form \(month must be in 1..12(, not 13)?\)"),
        ("a: !!int x\n", "bad.yaml: holds a value of the wrong form"),
        ("a: !!bool x\n", "bad.yaml: holds a value of the wrong form"),
        ("a: !!int ''\n", "bad.yaml: holds a value of the wrong form"),
        ("a: !!timestamp x\n", "bad.yaml: holds a value of the wrong form"),
        ("a: \0\n", "bad.yaml: is not YAML"),
        ("- 1\n", "bad.yaml: holds list"),
        ("", "bad.yaml: holds NoneType"),
        ("a: " + "9" * 400, r"bad.yaml line 1: holds the number 99999999999999999999... of 400 characters"),
        ("a: " + "9" * 5000, "bad.yaml: holds a value of the wrong form"),
        ("{a: " * 65 + "1" + "}" * 65, "bad.yaml: is nested too deeply"),
    ],
)
def test_wrong_yaml_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """Bombs, depth, repeated keys, foreign objects and broken values end in one line, not in a traceback or in swap."""
    path = write(tmp_path, "bad.yaml", text)
    with pytest.raises(DataError, match=words) as caught:
        read_yaml(Path(path), "a cluster file")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("expected a cluster file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1', "bad.json line 1: Expecting ',' delimiter"),
        ('{"a": NaN}', "bad.json: holds NaN"),
        ('{"a": Infinity}', "bad.json: holds Infinity"),
        (r'{"a": {"x\n: holds": 1}}', r"bad.json: key 'x\\n: holds' is not printable"),
        (r'{"\ud800": 1}', r"bad.json: key '\\ud800' is not printable"),
        ("[1]", "bad.json: holds list"),
        ("[" * 100_000, "bad.json: is nested too deeply"),
        ("9" * 5000, "bad.json: holds the number 99999999999999999999... of 5000 characters"),
        ('{"a": 1, "b": 2, "a": 3}', "bad.json: key 'a' stands twice"),
        ('{"a":' * 65 + "1" + "}" * 65, "bad.json: is nested too deeply"),
        ("", "bad.json line 1: Expecting value"),
        ('{"a": 1}\n{"a": 2}', "bad.json line 2: Extra data"),
    ],
)
def test_wrong_json_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """Truncated, deep, infinite or unfit JSON ends in one line."""
    with pytest.raises(DataError, match=words) as caught:
        read_json(Path(write(tmp_path, "bad.json", text)), "a plan")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder and a binary file each say what they are."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    expected: dict[Path, str] = {
        tmp_path / "nowhere.yaml": "No such file or directory",
        tmp_path: "Is a directory",
        binary: "is not UTF-8 text",
    }
    for path, words in expected.items():
        with pytest.raises(DataError, match=f"{words}, expected a cluster file"):
            read_yaml(path, "a cluster file")


def test_too_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a stated size a file is refused, even one that has no size of its own, such as a device."""
    monkeypatch.setattr("taut.data.read.MAX_BYTES", 10)
    with pytest.raises(DataError, match="is larger than 10 bytes, expected a cluster file"):
        read_yaml(Path(write(tmp_path, "large.yaml", "a: " + "x" * 100)), "a cluster file")
    if Path("/dev/zero").exists():
        with pytest.raises(DataError, match="/dev/zero: is larger than 10 bytes"):
            read_yaml(Path("/dev/zero"), "a cluster file")


@pytest.mark.parametrize("values", [{"layers": "2"}, {"layers": 2, "hidden": "8", "heads": 2, "seq": 4}])
def test_text_is_no_number_in_a_model_file(tmp_path: Path, values: dict[str, Any]) -> None:
    """A quoted count is refused rather than converted."""
    with pytest.raises(DataError, match=r"is '[28]', expected to be a valid integer"):
        load_model(write(tmp_path, "quoted.yaml", yaml.safe_dump(values)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+4", 4),
        ("0", 0),
        ("0o17", 15),
        ("0xfF", 255),
        ("1e9", 1e9),
        ("2.5E-3", 0.0025),
        (".5", 0.5),
        ("7.", 7.0),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("0b11", "0b11"),
        ("1_0.5", "1_0.5"),
        ("12e", "12e"),
    ],
)
def test_numbers_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    """What YAML 1.1 alone takes for a number is text, which no field for a number takes."""
    found = read_yaml(Path(write(tmp_path, "n.yaml", f"a: {text}")))["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["010", "-08", "00"])
def test_a_zero_before_a_number_is_refused(tmp_path: Path, text: str) -> None:
    """It makes another number of it in YAML 1.1, where 010 is 8."""
    with pytest.raises(DataError, match=rf"n.yaml line 1: {text} is another number in YAML 1.1 .*, expected no 0"):
        read_yaml(Path(write(tmp_path, "n.yaml", f"a: {text}")))


def test_more_values_than_fit_are_refused_at_once(tmp_path: Path) -> None:
    """Lists where a value is expected, of millions of numbers, in every format; none takes seconds."""
    began = time.process_time()
    many = ",".join(["1"] * 5_000_000)
    texts = {
        "flow.yaml": f"layers: [{many}]\n",
        "block.yaml": "layers:\n" + "- 1\n" * 1_000_000,
        "bare.json": f"[{many}]",
        "list.json": f'{{"layers": [{many}]}}',
        "wide.csv": many + "\n",
        "long.csv": "a,b\n" + "1,2\n" * 2_000_000,
        "matrix.csv": many + "\n",
    }
    for name, text in texts.items():
        path = Path(write(tmp_path, name, text))
        read: dict[str, Any] = {".yaml": read_yaml, ".json": read_json, ".csv": read_matrix}
        with pytest.raises(DataError, match=rf"{name}: holds more than [\d,]+ values, expected .* of fewer"):
            read_samples(path) if name in ("wide.csv", "long.csv") else read[path.suffix](path)
    assert time.process_time() - began < 10


def test_large_yaml_is_checked_as_small_one_is(tmp_path: Path) -> None:
    """Values, aliases, depth and keys that stand twice, beyond the size up to which the loader in Python reads."""
    values = "- 7\n" * 30_000
    found = read_yaml(Path(write(tmp_path, "a.yaml", "a:\n" + values)))
    assert found == {"a": [7] * 30_000}
    for more, words in {
        "b: &x 1\nc: *x\n": r"line 30003: alias \*x is not allowed",
        "b: " + "[" * 70 + "]" * 70 + "\n": "is nested too deeply",
        "a: 2\n": "line 30002: key 'a' stands twice",
        "b: 010\n": "line 30002: 010 is another number",
    }.items():
        with pytest.raises(DataError, match=words):
            read_yaml(Path(write(tmp_path, "b.yaml", "a:\n" + values + more)))


def test_a_pipe_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to it is the file; a pipe to which nobody writes ends in a line."""
    monkeypatch.setattr("taut.data.read.PATIENCE_S", 0.3)
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    with pytest.raises(DataError, match=r"pipe.yaml: is a pipe to which nothing is written within 0.3 s"):
        read_yaml(path)
    monkeypatch.setattr("taut.data.read.PATIENCE_S", 30.0)
    text = "a: [" + ", ".join(["12"] * 50_000) + "]\n"
    writer = threading.Thread(target=lambda: path.write_text(text, encoding="utf-8"))
    writer.start()
    assert read_yaml(path) == {"a": [12] * 50_000}
    writer.join()
