r"""
What nccl-tests (``all_reduce_perf`` and its like) printed, as text or JSON.

Of every message size the figures out of place are read: time (microseconds), algorithm and bus bandwidth (GB/s), and
of every rank its host. Text has a header that names the columns, of which older versions have fewer, and rows under
it; the JSON of option ``-J`` has the same. Empty messages are left out.

A cluster follows from a run of n ranks, of which the slowest link bounds the bus bandwidth
:math:`w(m)` at message size m, time :math:`t(m)`, and a ring takes :math:`s` steps,

(1) bandwidth :math:`w(m_{\max})` of the largest message,
(2) latency :math:`t(m_{\min}) / s` of the smallest, with s = 2(n - 1) for all_reduce, n - 1 for all_gather and
    reduce_scatter, and 1 for sendrecv.

The smallest message gives a latency only up to ``SMALL`` bytes; without such a one the latency is the usual one.

A run inside one host speaks for the links inside a node, one over several hosts for the network. There a collective
keeps all cards of a host busy, so (1) is the sum of a node's cards, of which one pair of devices has

(3) no more than that sum over the devices of a node.

sendrecv has one sender a host: (1) is one pair's, and says nothing of that sum. A text may hold several runs: the one
over the most hosts speaks for the network, the largest inside one host for the node, and repeats of one run have the
median of every size, with a line if their bus bandwidths (1) differ by more than ``NOISE``; runs that several hosts
made alone must agree within it.
Where the cluster is stated to be one node, as a rack of hosts in one NVLink domain, the run lies inside it. The library
may use other algorithms than a ring, so (2) is what a ring would have needed.

A run that ends before the largest message that its head announces is refused, as are runs over other hosts in one
file, repeats with other orders of ranks, and ranks that stand on two hosts. Sizes end where memory ends ("Reducing
maxBytes"). JSON does not say where memory ends; there ``out_of_bounds``, the summary after all sizes, tells that a run
is whole. Times of the host (``-C 1``) say nothing of the links, and those of operations that start together (``-m``)
are a share of what all take: neither gives a latency, while bandwidths are of the operation's time even then. Source:
NVIDIA/nccl-tests, src/common.cu and util.cu.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.read import lines_by_host, number_or_nan, plain_lines, read_json, read_text
from taut.data.spec import shorten, shorten_text
from taut.data.units import GIGABIT, GIGABYTE
from taut.errors import DataError

EXPECTED = "nccl-tests output"
NOISE = 0.1
"""Share by which runs that are alike may differ: less than the eighth that a node of eight cards loses with one."""

_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\son\s+(\S+)\s+device\s")
_GROUP = re.compile(r"\sGroup\s+(\d{1,9})\s")
_START = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_FIGURES = re.compile(r"\s*\d+\s+\d+\s")
_FAILED = re.compile(r"#\s*(Out of bounds values|Bitwise mismatches)\s*:.*\bFAILED\b")
_SIZES = re.compile(r"#.*\bminBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)")
_TOGETHER = re.compile(r"#.*\bagg iters: ([2-9]|\d{2})")
_REDUCED = re.compile(r"#\s*Reducing maxBytes to (\d+)")
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRow:
    """One message size out of place: bytes, microseconds (infinite: unknown), algorithm and bus bandwidth in GB/s."""

    size: int
    time_us: float
    algbw: float
    busbw: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRun:
    """One run: the collective, the host of every rank, and a row per measurement."""

    collective: str
    hosts: tuple[str, ...]
    rows: tuple[NcclRow, ...]
    inside: "NcclRun | None" = None
    """A run inside one host that the same file holds, beside one over several."""

    @property
    def ranks_per_host(self) -> dict[str, int]:
        """Ranks by host, in order of first rank."""
        return dict(Counter(self.hosts))


def read_nccltests(path: Path, collective: str = "") -> NcclRun:
    """Collective, hosts by rank, and rows out of place of what a run printed, or of its JSON."""
    text = read_text(path, EXPECTED)
    if text.lstrip().startswith("{"):
        report = read_json(path, EXPECTED)
        named, hosts, rows = _named(report), _hosts_json(report, path), _rows_json(report, path)
        config = report.get("config")
        if isinstance(config, dict) and config.get("aggregated_iterations", 1) != 1:
            rows = _untimed(rows)
        _check_end_json(report, rows, path)
    else:
        logs = _logs(text)
        if wrong := next((line for log in logs for _, line in log if _FAILED.match(line)), None):
            raise DataError(f"{path}: {wrong.strip('# ')}, expected 0 OK, as wrong results say nothing")
        return _joined([_run_text(run, collective, path) for log in logs for run in _runs(log)], path)
    return _run(named, collective, hosts, rows, path)


def _run(named: set[str], collective: str, hosts: tuple[str, ...], rows: tuple[NcclRow, ...], path: Path) -> NcclRun:
    """A run with its rows of messages that are not empty, the repeats of one size as their median."""
    sizes: dict[int, list[NcclRow]] = {}
    for row in rows:
        if row.size > 0:
            sizes.setdefault(row.size, []).append(row)
    if not sizes:
        raise DataError(f"{path}: has no row of figures, expected {EXPECTED}")
    medians = tuple(map(_median_row, sizes.values()))
    return NcclRun(collective=_agreed(named, collective, path), hosts=hosts, rows=medians)


def _median_row(rows: list[NcclRow]) -> NcclRow:
    """The row with the median time, or bandwidth where a time is unknown; of an even number the middle two's mean."""
    known = [row.time_us for row in rows if math.isfinite(row.time_us)]
    order = sorted(rows, key=lambda row: row.time_us if len(known) == len(rows) else -row.busbw)
    one, other = order[(len(rows) - 1) // 2], order[len(rows) // 2]
    means = {name: (getattr(one, name) + getattr(other, name)) / 2 for name in ("algbw", "busbw")}
    return replace(one, time_us=median(known) if known else math.inf, **means)


def _logs(text: str) -> list[list[tuple[int, str]]]:
    """Numbered lines of every host where each printed runs of its own, else all lines together."""
    apart = [log for log in lines_by_host(text).values() if any(_RANK.match(line.lstrip()) for _, line in log)]
    if len(apart) < 2 or not all(any(_FIGURES.match(line) for _, line in log) for log in apart):
        apart = [list(enumerate(plain_lines(text), start=1))]
    return [[(number, re.sub(r"^\s+#", "#", line)) for number, line in log] for log in apart]


def _runs(lines: list[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Numbered lines of every run: one begins where ranks are listed again after rows."""
    found: list[list[tuple[int, str]]] = [[]]
    remarks: list[tuple[int, str]] = []
    had_rows = False
    for number, line in lines:
        if line.startswith("#"):
            remarks.append((number, line))
            if had_rows and _RANK.match(line):
                found.append([])
                had_rows = False
            continue
        found[-1] += remarks
        remarks = []
        found[-1].append((number, line))
        had_rows = had_rows or _FIGURES.match(line) is not None
    found[-1] += remarks
    return found


def _run_text(lines: list[tuple[int, str]], collective: str, path: Path) -> NcclRun:
    texts = [line for _, line in lines]
    rows = _rows_text(lines, path)
    rows = _untimed(rows) if any(map(_TOGETHER.match, texts)) else rows
    named = {match[1] for line in texts if (match := _START.match(line))}
    run = _run(named, collective, _hosts_text(texts, path), rows, path)
    _check_end(texts, max(row.size for row in run.rows), path)
    return run


def _untimed(rows: tuple[NcclRow, ...]) -> tuple[NcclRow, ...]:
    return tuple(replace(row, time_us=math.inf) for row in rows)


def _check_end(lines: list[str], largest: int, path: Path) -> None:
    """Refuse a run before the last size that its head announces, but for rounding to ranks."""
    head = next(filter(None, map(_SIZES.match, lines)), None)
    if head is None:
        return
    reduced = [int(match[1]) for line in lines if (match := _REDUCED.match(line))]
    first, most, step = int(head[1]), min([int(head[2]), *reduced]), int(head[3])
    if _is_before(largest, _last_size(first, most, step if head[4] == "factor" else 0, step)):
        raise DataError(f"{path}: ends at {largest} bytes, expected messages up to {most} as its head says")


def _last_size(first: int, most: int, factor: int, step: int) -> int:
    """The last of the sizes from the first on, times a factor above 1 or else a step apart, up to the largest."""
    if factor > 1 and first > 0:
        while first * factor <= most:
            first *= factor
        return first
    return most - (most - first) % step if step > 0 and first < most else most


def _is_before(largest: int, last: int) -> bool:
    """Whether a size is below the last by more than rounding to ranks: 16 bytes each, here of 1024, or a hundredth."""
    return largest < 0.99 * last - 16 * 1024


def _check_end_json(report: dict[str, Any], rows: tuple[NcclRow, ...], path: Path) -> None:
    """Refuse wrong results, and a run before its largest message without the summary that ends every run."""
    config = report.get("config")
    for name in ("out_of_bounds", "bitwise_mismatches"):
        found = report.get(name, {"okay": True})
        found = found if isinstance(found, dict) else {}
        if (okay := found.get("okay")) is not True:
            told = "false" if okay is False else shorten(okay)
            said = f"{name}.okay is {told} ({shorten(found.get('count'))} values)"
            raise DataError(f"{path}: {said}, expected true, as wrong results say nothing")
    if not rows or not isinstance(config, dict) or "out_of_bounds" in report:
        return
    names = ("minimum_bytes", "maximum_bytes", "step_factor", "step_bytes")
    first, most, factor, step = (own if isinstance(own := config.get(name), int) else 0 for name in names)
    if _is_before(largest := max(row.size for row in rows), _last_size(first, most, factor, step)):
        said = f"ends at {largest} bytes without out_of_bounds"
        raise DataError(f"{path}: {said}, expected messages up to {most} as config.maximum_bytes says")


def _joined(runs: list[NcclRun], path: Path) -> NcclRun:
    """The run over most hosts and ranks, repeats as one, with the largest inside a host; of one collective."""
    if len(names := {run.collective for run in runs}) > 1:
        raise DataError(f"{path}: has the collectives {', '.join(sorted(names))}, expected one in a file")
    widest = max(runs, key=lambda run: (len(run.ranks_per_host), len(run.hosts)))
    inside = [run for run in runs if len(run.ranks_per_host) == 1]
    if len(widest.ranks_per_host) == 1:
        return _of_node(inside, path)
    for run in runs:
        same = len(run.ranks_per_host) == len(widest.ranks_per_host) and len(run.hosts) == len(widest.hosts)
        if same and set(run.hosts) != set(widest.hosts):
            first, other = (shorten(sorted(each.ranks_per_host)) for each in (widest, run))
            raise DataError(f"{path}: has runs over {first} and over {other}, expected those of the same hosts")
        if same and run.hosts != widest.hosts:
            rank = next(i for i, pair in enumerate(zip(run.hosts, widest.hosts, strict=True)) if len(set(pair)) > 1)
            said = f"has rank {rank} on {widest.hosts[rank]} in one run and on {run.hosts[rank]} in another"
            raise DataError(f"{path}: {said}, expected repeats with the same order of ranks, or a file for each order")
    joined = _median([run for run in runs if run.hosts == widest.hosts], path)
    inside = [run for run in inside if len(run.hosts) > 1]
    return replace(joined, inside=_of_node(inside, path)) if inside else joined


def _of_node(runs: list[NcclRun], path: Path) -> NcclRun:
    """The largest run inside a host, repeats as their median; of several hosts that of all if they agree."""
    most = {run.hosts[0]: 0 for run in runs}
    for run in runs:
        most[run.hosts[0]] = max(most[run.hosts[0]], len(run.hosts))
    if len(set(most.values())) > 1:
        said = ", ".join(f"{host} {count}" for host, count in most.items())
        raise DataError(
            f"{path}: hosts alone have other numbers of ranks, {shorten_text(said)}; expected as many on each"
        )
    hosts = {host: [run for run in runs if run.hosts == (host,) * count] for host, count in most.items()}
    if len(hosts) > 1:
        found = {host: _largest(_median(own, path)).busbw for host, own in hosts.items()}
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        if found[low] < (1 - NOISE) * found[high]:
            said = f"{low} has {found[low]:g} GB/s of bus bandwidth and {high} {found[high]:g}"
            raise DataError(f"{path}: {said}, expected hosts within {NOISE:.0%}, or one host")
        warnings.warn(f"{path}: the median of {len(hosts)} hosts alike is taken for a node", UserWarning, stacklevel=4)
    return _median([run for own in hosts.values() for run in own], path)


def _median(runs: list[NcclRun], path: Path) -> NcclRun:
    """Runs alike as one, under the hosts of the first; a line says by how much they differ beyond noise."""
    found = sorted(_largest(run).busbw for run in runs)
    if found[0] < (1 - NOISE) * found[-1]:
        said = f"{len(runs)} runs alike have {found[0]:g} to {found[-1]:g} GB/s of bus bandwidth"
        warnings.warn(f"{path}: {said}, their median is taken", UserWarning, stacklevel=5)
    return _run({runs[0].collective}, "", runs[0].hosts, tuple(row for run in runs for row in run.rows), path)


def _agreed(named: set[str], stated: str, path: Path) -> str:
    """The one collective that the file names or the caller states."""
    found = {PurePosixPath(name).name.partition("_perf")[0] for name in named} | ({stated} if stated else set())
    if len(found) != 1:
        fault = f"has the collectives {', '.join(sorted(found))}" if found else "names no collective"
        raise DataError(f"{path}: {fault}, expected one; --collective states it, such as all_reduce")
    return found.pop()


def _in_order(ranks: Mapping[int, str], groups: set[int], path: Path) -> tuple[str, ...]:
    """Hosts by rank."""
    if not ranks or sorted(ranks) != list(range(len(ranks))):
        raise DataError(f"{path}: names the ranks {shorten(sorted(ranks))}, expected 0, 1, ... and their hosts")
    if len(groups) > 1:
        raise DataError(f"{path}: has {len(groups)} groups of ranks, expected one communicator")
    return tuple(ranks[rank] for rank in range(len(ranks)))


def _hosts_text(lines: list[str], path: Path) -> tuple[str, ...]:
    found = [(match, line) for line in lines if (match := _RANK.match(line))]
    groups = {int(group[1]) for _, line in found if (group := _GROUP.search(line))}
    hosts = {int(match[1]): match[2] for match, _ in found}
    for match, _ in found:
        if (last := hosts[int(match[1])]) != match[2]:
            said = f"has rank {match[1]} on {match[2]} and on {last}"
            raise DataError(f"{path}: {said}, expected one run (nccl-tests without MPI starts one on every host)")
    return _in_order(hosts, groups, path)


def _rows_text(lines: list[tuple[int, str]], path: Path) -> tuple[NcclRow, ...]:
    """Rows under the header that names their columns; what stands before and between is not read."""
    header: list[str] = []
    rows = []
    for number, line in lines:
        words = _TIMESTAMP.sub("", line).lstrip("# ").split()
        if line.startswith("#"):
            header = _header(words) or header
        elif header and words and words[0].isdecimal():
            where = f"{path} line {number}"
            rows.append(_row(_cells(words, header, where), where))
    return tuple(rows)


def _header(words: list[str]) -> list[str]:
    """Column names, if this line has them."""
    names = [word for word in words if word != "timestamp"]
    is_one = names[:1] in (["size"], ["bytes"]) and {"algbw", "busbw"} <= set(names)
    return names if is_one and {"time", "cputime"} & set(names) else []


def _cells(words: list[str], header: list[str], where: str) -> dict[str, object]:
    """Cells of a row by column name, counted from the right, as older versions leave columns of text blank."""
    first = header.index("time" if "time" in header else "cputime")
    figures = len(header) - first
    if not 3 <= len(words) - figures <= first:
        raise DataError(f"{where}: has {len(words)} columns, expected {len(header)} as the header has")
    own = dict(zip(header[first : first + 4], words[len(words) - figures :], strict=False))
    return {"size": words[0], **own}


def _row(cells: Mapping[str, object], where: str) -> NcclRow:
    wrong = cells.get("#wrong")
    if wrong not in (None, "N/A") and _figure(cells, "#wrong", where) != 0:
        raise DataError(f"{where}: #wrong is {shorten(wrong)}, expected 0 or N/A, as wrong results say nothing")
    time = math.inf if cells.get("cputime") is not None else _figure(cells, "time", where)
    if time == 0:
        raise DataError(f"{where}: time is {shorten(cells.get('time'))}, expected microseconds > 0")
    return NcclRow(
        size=int(_figure(cells, "size", where)),
        time_us=time,
        algbw=_figure(cells, "algbw", where),
        busbw=_figure(cells, "busbw", where),
    )


def _figure(cells: Mapping[str, object], name: str, where: str) -> float:
    value = number_or_nan(cells.get(name))
    if not (math.isfinite(value) and value >= 0):
        raise DataError(f"{where}: {name} is {shorten(cells.get(name))}, expected a number from 0 on")
    return value


def _named(report: dict[str, Any]) -> set[str]:
    args = report.get("args")
    return {args[0]} if isinstance(args, list) and args and isinstance(args[0], str) else set()


def _hosts_json(report: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Hosts by rank; the file lists the first of a process alone, which stands for its threads x devices."""
    config = report.get("config")
    config = config if isinstance(config, dict) else {}
    listed: Any = config.get("devices", report.get("devices"))
    each = _count(config, "nthreads", path) * _count(config, "ngpus", path)
    try:
        first = {int(entry["rank"]): str(entry["hostname"]) for entry in listed}
        groups = {int(entry.get("group", 0)) for entry in listed}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise DataError(f"{path}: devices: is {shorten(listed)}, expected a rank and a hostname of each") from None
    if any(rank % each for rank in first):
        each = 1
    return _in_order({rank + i: host for rank, host in first.items() for i in range(each)}, groups, path)


def _count(config: dict[str, Any], name: str, path: Path) -> int:
    value = config.get(name, 1)
    if not isinstance(value, int) or not 0 < value <= 1024:
        raise DataError(f"{path}: config.{name}: is {shorten(value)}, expected a whole number from 1 to 1024")
    return value


def _rows_json(report: dict[str, Any], path: Path) -> tuple[NcclRow, ...]:
    results = report.get("results")
    if not isinstance(results, list):
        raise DataError(f"{path}: results: is {shorten(results)}, expected a list of rows")
    return tuple(_row_json(entry, f"{path}: results.{i}") for i, entry in enumerate(results))


def _row_json(entry: object, where: str) -> NcclRow:
    own = entry.get("out_of_place") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(own, dict):
        raise DataError(f"{where}: out_of_place: is {shorten(own)}, expected time, alg_bw and bus_bw")
    times = {"time": own.get("time"), "cputime": own.get("cpu_time")}
    names = {"size": entry.get("size"), **times, "algbw": own.get("alg_bw"), "busbw": own.get("bus_bw")}
    return _row({**names, "#wrong": own.get("nwrong")}, where)


INTRA_LATENCY_US = 3.0
LATENCY_US = 5.0
"""Latencies inside a node and between nodes, assumed where the run does not measure them."""
SMALL = 16 * 1024
"""Bytes of a message up to which its time is latency."""


def latency_assumed(run: NcclRun) -> str:
    """Why a run gives no latency, in words; empty where it gives one."""
    inside = "" if run.inside is None else _untold(run.inside)
    if not (why := _untold(run) or (inside and f"inside a node {inside}")):
        return ""
    usual = f"{INTRA_LATENCY_US:g} us inside a node and {LATENCY_US:g} us between nodes"
    return f"{why}, which tell no latency: {usual} are taken where none is stated"


def _untold(run: NcclRun) -> str:
    """What hides the latency of a run; empty where it gives one."""
    least = min(run.rows, key=lambda row: row.size)
    if least.time_us == math.inf:
        return "the times are the host's (-C) or of operations together (-m)"
    return "" if least.size <= SMALL else f"the smallest message has {least.size} bytes"


def cluster_from_nccltests(
    run: NcclRun,
    *,
    name: str,
    device: DeviceSpec,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    intra_bandwidth_gbps: float | None = None,
    intra_latency_us: float | None = None,
    bandwidth_gbps: float | None = None,
    latency_us: float | None = None,
    nic_bandwidth_gbps: float | None = None,
) -> ClusterSpec:
    """Cluster of equal nodes with the figures that the run measures, eqs. (1) and (2), unless stated."""
    measured, latency = _bandwidth_gbps(run, name), _latency_us(run, name)
    if run.inside is not None and nodes != 1:
        own = run.inside
        intra_bandwidth_gbps = _stated(intra_bandwidth_gbps, _bandwidth_gbps(own, name))
        intra_latency_us = _stated(intra_latency_us, _latency_us(own, name))
    inside = nodes == 1 or len(run.ranks_per_host) == 1
    if not inside and intra_bandwidth_gbps is None:
        hosts = len(run.ranks_per_host)
        raise DataError(f"{name}: intra_bandwidth_gbps: missing, expected with a run over {hosts} hosts")
    cards = None if inside or run.collective == "sendrecv" else measured
    devices = _gpus(run, name, inside) if gpus_per_node is None else gpus_per_node
    if cards is not None and nic_bandwidth_gbps is None and set(run.ranks_per_host.values()) != {devices}:
        ranks = shorten(sorted(set(run.ranks_per_host.values())))
        said = f"hosts have {ranks} ranks of {devices} devices, which do not keep all cards busy"
        raise DataError(f"{name}: {said}, expected nic_bandwidth_gbps beside them")
    whole = _stated(nic_bandwidth_gbps, cards)
    pair = measured if whole is None or run.collective == "sendrecv" else min(measured, whole / devices)
    node = {
        "count": len(run.ranks_per_host) if nodes is None else nodes,
        "device": device,
        "gpus_per_node": devices,
        "intra_bandwidth_gbps": _stated(intra_bandwidth_gbps, measured),
        "intra_latency_us": _stated(
            intra_latency_us, _stated(latency, INTRA_LATENCY_US) if inside else INTRA_LATENCY_US
        ),
        "nic_bandwidth_gbps": whole,
    }
    network = {
        "bandwidth_gbps": _stated(bandwidth_gbps, None if inside else pair),
        "latency_us": _stated(latency_us, _stated(None if inside else latency, LATENCY_US)),
    }
    return ClusterSpec.parse({"name": name, "nodes": [node], "network": network, "source": _source(run, inside)}, name)


def _stated(stated: float | None, otherwise: float | None) -> float | None:
    return otherwise if stated is None else stated


def _gpus(run: NcclRun, name: str, inside: bool) -> int:
    counts = {len(run.hosts)} if inside else set(run.ranks_per_host.values())
    if len(counts) > 1:
        raise DataError(f"{name}: hosts have {shorten(sorted(counts))} ranks, expected as many on each")
    return counts.pop()


def _bandwidth_gbps(run: NcclRun, name: str) -> float:
    """Gb/s of the largest message, eq. (1)."""
    largest = _largest(run)
    if not largest.busbw > 0:
        raise DataError(f"{name}: bus bandwidth of {largest.size} bytes is {largest.busbw:g}, expected GB/s > 0")
    return largest.busbw * GIGABYTE / GIGABIT


def _largest(run: NcclRun) -> NcclRow:
    return max(run.rows, key=lambda row: (row.size, row.busbw))


def _latency_us(run: NcclRun, name: str) -> float | None:
    """Microseconds of one step of the smallest message, eq. (2); None where no message is small."""
    ring = len(run.hosts) - 1
    steps = {"all_reduce": 2 * ring, "all_gather": ring, "reduce_scatter": ring, "sendrecv": 1}
    if run.collective not in steps:
        raise DataError(f"{name}: collective is {run.collective!r}, expected one of {', '.join(steps)}")
    if ring == 0:
        raise DataError(f"{name}: the run has one rank, expected at least two")
    smallest = min(run.rows, key=lambda row: (row.size, row.time_us))
    return None if _untold(run) else smallest.time_us / steps[run.collective]


def _source(run: NcclRun, inside: bool) -> str:
    hosts = len(run.ranks_per_host)
    what = "links inside a node" if inside else "network" if run.inside is None else "network and nodes"
    why = _untold(run)
    latency = f"latency assumed, as {why}" if why else "time of the smallest per ring step"
    return (
        f"nccl-tests {run.collective}, {len(run.hosts)} ranks on {hosts} host{'s' * (hosts > 1)}: {what} measured "
        f"where not stated (bus bandwidth of the largest message, {latency}), the rest assumed"
    )
