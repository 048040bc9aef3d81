"""Chakra traces: read back by protobuf itself, run as a simulator would, and compared with the simulated step."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import taut
from taut.data.units import MICROSECOND
from taut.exports.chakra import COLLECTIVES, chakra_files, varint
from taut.exports.job import Job
from taut.formulations.simulation import passes
from taut.formulations.simulation.passes import COMPUTE, STREAMS
from taut.simulation import Simulation
from tests.support.launches import MODEL, launched, launched_on, model_with_experts, shuffled, small_cluster
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof

COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7
HOSTILE = "</x>\n\x1b[31m../../$(touch PWNED)\u2028é"
SCHEMA = {
    "AttributeProto": {1: "name string", 7: "int32_val int32", 9: "int64_val int64", 27: "bool_val bool"},
    "GlobalMetadata": {1: "version string", 2: "attr AttributeProto"},
    "Node": {1: "id uint64", 2: "name string", 3: "type int32", 5: "data_deps uint64s", 7: "duration_micros uint64"},
}
SCHEMA["AttributeProto"][29] = "string_val string"
SCHEMA["Node"][10] = "attr AttributeProto"
"""Fields of mlcommons/chakra's et_def.proto that are written; an enumeration is read as its number."""


@cache
def classes() -> dict[str, Any]:
    """Classes of the messages, made by protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, words in fields.items():
            field, kind = words.split()
            own = message.field.add(name=field, number=number, label=3 if kind.endswith(("s", "Proto")) else 1)
            if kind in SCHEMA:
                own.type, own.type_name = own.TYPE_MESSAGE, f".et.{kind}"
            else:
                own.type = getattr(own, f"TYPE_{kind.removesuffix('s').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{name}")) for name in SCHEMA}


def messages(content: bytes) -> Iterator[bytes]:
    """Messages with their length in front."""
    at = 0
    while at < len(content):
        size = shift = 0
        while True:
            size |= (content[at] & 127) << shift
            shift += 7
            at += 1
            if content[at - 1] < 128:
                break
        yield content[at : at + size]
        at += size


def read(content: bytes) -> tuple[Any, list[Any]]:
    """Metadata and nodes of a trace."""
    first, *rest = messages(content)
    return classes()["GlobalMetadata"].FromString(first), [classes()["Node"].FromString(each) for each in rest]


def values(node: Any) -> dict[str, Any]:
    """Attributes of a node."""
    return {each.name: getattr(each, each.ListFields()[-1][0].name) for each in node.attr if len(each.ListFields()) > 1}


Traces = dict[int, list[Any]]


def traces_of(job: Job) -> tuple[Traces, dict[str, list[int]]]:
    """Nodes by device, and groups."""
    files = chakra_files(job)
    nodes = {int(name.split(".")[1]): read(content)[1] for name, content in files.items() if isinstance(content, bytes)}
    return nodes, json.loads(files["comm_groups.json"])


def run_traces(traces: Traces, groups: dict[str, list[int]], seconds: Callable[[Any], float]) -> float:
    """Microseconds of a step in which a collective starts when all of its group do, and a message ends at both ends."""
    places = {(device, node.id): node for device, nodes in traces.items() for node in nodes}
    events = dict[tuple[int, int], Any]()
    turns = Counter[tuple[int, str]]()
    for device, nodes in traces.items():
        for node in nodes:
            found, key = values(node), (device, node.id)
            if node.type == COLL:
                turns[device, found.get("pg_name", "")] += 1
                events[key] = "group", found.get("pg_name", ""), turns[device, found.get("pg_name", "")]
            elif node.type in (SEND, RECV):
                events[key] = "message", found.get("comm_src", 0), found.get("comm_dst", 0), found.get("comm_tag", 0)
            else:
                events[key] = key
    members, waits = defaultdict[Any, list[tuple[int, int]]](list), Counter[Any]()
    children, start = defaultdict[Any, set[Any]](set), defaultdict[Any, float](float)
    for key, event in events.items():
        members[event].append(key)
    for (device, number), node in places.items():
        for other in node.data_deps:
            before, after = events[device, other], events[device, number]
            if after not in children[before]:
                children[before].add(after)
                waits[after] += 1
    ready = [event for event in members if not waits[event]]
    end, done = 0.0, 0
    while ready:
        event = ready.pop()
        done += 1
        ended = start[event] + max(seconds(places[key]) for key in members[event])
        end = max(end, ended)
        for child in children[event]:
            start[child] = max(start[child], ended)
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    assert done == len(members), "nodes wait for each other"
    return end


def computed(node: Any) -> float:
    """Microseconds of computation; communication takes none."""
    return node.duration_micros if node.type == COMP else 0.0


PIPELINE = {"pp": 2, "tp": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "none", "zero": 1}
FIXED: dict[str, dict[str, Any]] = {
    "sums of tensor groups": {**PIPELINE, "sequence_parallel": False},
    "gathers and scatters": {**PIPELINE, "sequence_parallel": True, "recompute": "selective"},
    "everything again": {**PIPELINE, "sequence_parallel": True, "recompute": "full", "tp": 4, "pp": 1},
    "chunks": {**PIPELINE, "schedule": "interleaved-1f1b", "vpp": 3, "sequence_parallel": True},
    "weights apart": {**PIPELINE, "schedule": "zb-v", "vpp": 2, "sequence_parallel": True},
    "shards": {"pp": 1, "tp": 2, "micro_batch": 1, "zero": 3, "recompute": "none"},
    "shards in copies": {"pp": 1, "tp": 1, "micro_batch": 1, "zero": 3, "dp_shard": 4, "recompute": "full"},
    "gradients in shards": {"pp": 1, "tp": 1, "micro_batch": 1, "zero": 2, "recompute": "none"},
    "contexts": {"pp": 2, "tp": 1, "cp": 2, "micro_batch": 1, "zero": 1, "schedule": "1f1b"},
    "contexts that gather": {"pp": 1, "tp": 2, "cp": 4, "cp_comm": "all_gather", "micro_batch": 1, "zero": 1},
    "contexts that swap heads": {"pp": 1, "tp": 1, "cp": 2, "cp_comm": "a2a", "micro_batch": 1, "zero": 1},
    "one device a replica": {"pp": 1, "tp": 1, "micro_batch": 2, "zero": 0},
}


@cache
def case(name: str) -> tuple[Job, Traces, dict[str, list[int]]]:
    """A plan on a placement drawn at random, with its traces."""
    if name == "experts":
        fix = {"pp": 2, "tp": 1, "ep": 2, "micro_batch": 1, "zero": 1, "schedule": "1f1b"}
        job = launched_on(small_cluster(), model_with_experts(4), **fix)
    else:
        job = launched(**FIXED[name])
    if name in ("sums of tensor groups", "one device a replica"):
        job = shuffled(job, 3)
    return job, *traces_of(job)


CASES = [*FIXED, "experts"]


@pytest.mark.parametrize("name", CASES)
def test_every_send_has_its_receive(name: str) -> None:
    """Of messages by both ends, tag and bytes as many are sent as received, by the device whose trace says so."""
    _, traces, _ = case(name)
    ends = {SEND: Counter[Any](), RECV: Counter[Any]()}
    for device, nodes in traces.items():
        for node in nodes:
            if node.type in ends:
                found = values(node)
                own = found.get("comm_src" if node.type == SEND else "comm_dst", 0)
                assert own == device
                message = tuple(found.get(f"comm_{key}", 0) for key in ("src", "dst", "tag", "size"))
                ends[node.type][message] += 1
    assert ends[SEND] == ends[RECV]
    assert set(ends[SEND].values()) <= {1}
    assert bool(ends[SEND]) == (case(name)[0].strategy.pp > 1)


@pytest.mark.parametrize("name", CASES)
def test_members_of_a_group_run_the_same_collectives(name: str) -> None:
    """In one order, with the same bytes; every group has the devices that name it, and each group is used."""
    _, traces, groups = case(name)
    run: dict[str, dict[int, list[Any]]] = defaultdict(dict)
    for device, nodes in traces.items():
        for node in nodes:
            if node.type == COLL:
                found = values(node)
                said = found.get("comm_type", 0), found["comm_size"]
                run[found.get("pg_name", "")].setdefault(device, []).append(said)
    assert {device: len(said) for device, said in run.pop("").items()} == dict.fromkeys(traces, 1), "the norm"
    assert {name: sorted(members) for name, members in groups.items()} == {g: sorted(run[g]) for g in run}
    assert all(one == other for members in run.values() for one, other in pairwise(members.values()))
    assert all(int(name) > 0 for name in groups), "0 stands for all devices"


@pytest.mark.parametrize("name", CASES)
def test_durations_are_those_of_the_simulated_step(name: str) -> None:
    """Computation by device, the step without communication, and at the prices of communication the whole step."""
    job, traces, groups = case(name)
    found = taut.simulate(job.plan)
    assert isinstance(found, Simulation)
    every = taut.simulate_strategy(found.problem, found.strategy, found.workers, every_replica=True)
    graph, constant = every.graph, found.problem.constant_of(found.strategy.candidate)
    busy = np.bincount(graph.stream, weights=graph.seconds, minlength=graph.devices * len(STREAMS))
    for place, members in np.ndenumerate(_blocks(job, found.strategy.candidate.pipelines)):
        seconds = busy[(place[1] * graph.ranks + place[0]) * len(STREAMS) + COMPUTE] + constant
        assert sum(map(computed, traces[int(members)])) == pytest.approx(seconds / MICROSECOND, abs=1.01)
    ranks = 2 * graph.ranks + 2
    silenced = [kind in COLLECTIVES or kind in (passes.SEND, passes.RETURN) for kind in graph.kind.tolist()]
    graph.seconds[silenced] = 0.0
    silent = (graph.times() + graph.seconds).max() + constant
    assert run_traces(traces, groups, computed) == pytest.approx(silent / MICROSECOND, abs=ranks)
    whole = run_traces(traces, groups, lambda node: node.duration_micros)
    assert whole == pytest.approx(found.step_time_s / MICROSECOND, rel=1e-3, abs=ranks)


def _blocks(job: Job, pipelines: int) -> Any:
    """Devices (pp, pipelines, width) of a plan."""
    return job.devices.reshape(job.strategy.pp, pipelines, -1)


def sizes(name: str, words: str, collective: int | None = None) -> set[int]:
    """``comm_size`` of all nodes whose names begin so, of one collective."""
    nodes = [node for nodes in case(name)[1].values() for node in nodes if node.name.startswith(words)]
    return {values(each)["comm_size"] for each in nodes if collective in (None, values(each).get("comm_type", 0))}


TOKENS = 128 * 256 * 2
"""Bytes of the activations of one sequence: 128 tokens of 256 numbers in bf16."""


def test_bytes_are_those_of_a_hand_calculation() -> None:
    """Activations, halves of them, keys, tokens, and weights of a layer, each in its collective."""
    assert sizes("sums of tensor groups", "send") == {TOKENS}
    assert sizes("gathers and scatters", "send") == {TOKENS // 2}
    assert sizes("sums of tensor groups", "tensor") == sizes("sums of tensor groups", "tensor", ALL_REDUCE) == {TOKENS}
    assert sizes("gathers and scatters", "tensor", ALL_GATHER) == {TOKENS // 2}
    assert sizes("gathers and scatters", "tensor", REDUCE_SCATTER) == {TOKENS}
    assert sizes("everything again", "tensor", ALL_GATHER) == {TOKENS // 4}
    # A layer of 256: attention 4 and feed-forward part 8 times 256 squared, two norms; halved by the tensor ranks.
    layer = (12 * 256 * 256 // 2 + 256 * 4 + 1024 // 2 + 4 * 256) * 2 // 4
    gathered = sizes("shards", "gather")
    assert min(gathered) == pytest.approx(layer, rel=0.01)
    assert sizes("shards", "scatter", REDUCE_SCATTER) == {8 * size for size in gathered}
    # A tensor rank of two passes the keys and values of a fourth of the tokens; backward their gradients as well.
    assert sizes("contexts that gather", "context", ALL_GATHER) == {2 * TOKENS // 8, 4 * TOKENS // 8}
    # Queries, keys, values and what attention yields, each of half of the tokens.
    assert sizes("contexts that swap heads", "context", ALL_TO_ALL) == {4 * TOKENS // 2}
    # Attention hides some of a ring, the same share in both passes.
    forward, backward = sorted(sizes("contexts", "context", ALL_GATHER))
    assert backward == pytest.approx(2 * forward, abs=1) and forward < 2 * TOKENS // 2


def test_bytes_of_a_reduction_are_those_of_the_gradients() -> None:
    """All parameters of one device in four bytes each, for every replica."""
    assert sizes("one device a replica", "reduce gradients") == {4 * MODEL.parameters()}


def test_names_stay_text_and_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with controls is one line of metadata; traces above the limit are not made."""
    job, traces, _ = case("shards")
    plan = taut.Plan(json.loads(json.dumps(job.plan.document)))
    plan.document["inputs"]["model"]["name"] = HOSTILE
    monkeypatch.setattr(type(plan), "model", HOSTILE)
    files = chakra_files(Job(plan))
    trace = files["trace.0.et"]
    assert isinstance(trace, bytes)
    head, nodes = read(trace)
    assert values(head)["model"] == HOSTILE.replace("\n", " ").replace("\x1b", " ").replace("\u2028", " ")
    assert len(nodes) == len(traces[0])
    assert {name for name in files if "/" in name} == set()
    monkeypatch.setattr("taut.exports.chakra.MOST_NODES", 10)
    with pytest.raises(taut.errors.DataError, match="expected at most 10"):
        chakra_files(job)


def test_numbers_are_read_back() -> None:
    """Seven bits a byte, the lowest first: 300 is 172 and 2."""
    assert varint(300) == bytes([172, 2])
    assert [next(messages(varint(n) + bytes(n))) for n in (0, 1, 127, 128, 20_000)] == [
        bytes(n) for n in (0, 1, 127, 128, 20_000)
    ]


def test_command_writes_traces_alone(run: Run, tmp_path: Path) -> None:
    """A trace for each device; with a target that starts processes nothing is written."""
    plan = tmp_path / "p.json"
    case("chunks")[0].plan.write(plan)
    refused(run("export", plan, "--to", "chakra,torchrun", "--out", tmp_path / "out"), "expected it alone")
    outcome = run("export", plan, "--to", "chakra", "--out", tmp_path / "out")
    assert outcome.code == 0 and "trace.0.et" in outcome.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    rest = {"comm_groups.json", "ranks.csv", "plan.json", "launch.md"}
    assert names == {f"trace.{device}.et" for device in range(8)} | rest


def test_chakra_reads_the_traces(tmp_path: Path) -> None:
    """The classes of the package of MLCommons, where it is installed, read what is written."""
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2")
    reader = pytest.importorskip("chakra.src.third_party.utils.protolib")
    taut.export(case("chunks")[0].plan, "chakra", tmp_path / "out")
    for device, nodes in case("chunks")[1].items():
        with (tmp_path / "out" / f"trace.{device}.et").open("rb") as file:
            reader.decodeMessage(file, schema.GlobalMetadata())
            for own in nodes:
                assert reader.decodeMessage(file, node := schema.Node())
                assert (node.id, node.name, list(node.data_deps)) == (own.id, own.name, list(own.data_deps))
