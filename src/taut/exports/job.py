r"""
A plan as a launcher sees it: numbered processes, each on one device.

Of pp stages, dp replicas, cp context ranks and tp tensor ranks, process

(1) :math:`r = ((x \, dp + z) \, cp + c) \, tp + t`

is tensor rank t and context rank c of replica z on stage x. This is the order in which Megatron-LM
(``tp-cp-ep-dp-pp``), torchtitan and DeepSpeed number their groups, so that a placement is one permutation: device
:math:`\pi(r)` of process r. Device d is GPU d minus the devices of earlier machines, on its machine. A node of
a cluster, which is what NVLink spans, is one machine or several (``taut.data.cluster``).

A placement stands in the words of the program that starts the processes: torchrun, Slurm, Open MPI. ``process.sh``
numbers a process by what Slurm or Open MPI tells it, and gives it the GPU on its line of ``gpus.txt`` as
``LOCAL_RANK``, which frameworks take for the device to use. ``ranks.csv`` is for people. As in NVIDIA's recipes
(Megatron-Bridge, scripts/performance) ``numactl`` keeps a process on the cores and the memory of the GPU's NUMA node,
which the host names in ``/sys/bus/pci``; Slurm binds to no cores, as one task would have one core.

Of N = tp cp dp processes on a stage of a model with experts the same numbers count twice
(``taut.formulations.degrees`` (1) and (3)):

(2) :math:`r = ((x \, edp + w) \, ep + e) \, etp + u`, expert tensor rank u, expert rank e, copy w of the experts, with
    edp = N / (ep etp). Without expert ranks all tensor ranks share every expert: etp = tp.

Open MPI takes a rankfile, which puts any process on any slot of any host. Slot g of a host is its core g, and stands
for GPU g. Where a process needs more cores than one, ``mpirun --map-by seq:FILE=hosts.txt --bind-to none`` takes the
hosts alone. Source: Open MPI 5, mpirun, ``--map-by rankfile``.

torchrun has a static rendezvous, ``torchrun.sh``, one for all nodes. It numbers processes node by node,
``--node-rank`` times the processes a node. A plan whose processes lie so needs one torchrun a node; its GPUs are listed
in ``CUDA_VISIBLE_DEVICES`` in the order of their processes. Any other plan has one torchrun a GPU, each a node of one
process. Source: torch/distributed/run.py.

Slurm has a job script, the host of every process, and a wrapper that gives a process its GPU. ``srun
--distribution=arbitrary`` starts process i on line i of ``SLURM_HOSTFILE``. Where the hosts' names are not known, the
script makes that file from the nodes of the allocation, in their order. Source: Slurm's manual of srun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.data.arrays import Ints
from taut.data.calibration import FP8_GATHERS, features_of
from taut.data.cluster import ClusterSpec, NodeSpec
from taut.data.layers.experts import DispatchSpec
from taut.data.loss import LOSSES, LossKind, as_loss
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import ANY_DIVISION
from taut.errors import DataError
from taut.files import template
from taut.formulations.degrees import inner_contexts
from taut.formulations.mechanisms.offload import activations_share, states_share
from taut.formulations.mechanisms.recompute import block_words
from taut.planning.plan import Plan
from taut.planning.tables import described_cluster, described_model
from taut.quoting import host_name, shell_word
from taut.solver.certificate.document import StrategySection
from taut.words import csv_text


class ExportError(DataError):
    """A plan that a launcher cannot run, with the nearest one that it can."""


@dataclass(frozen=True, eq=False)
class Job:
    """A plan with the names of its machines in the order of its devices; ``node-0`` and so on where none are known."""

    plan: Plan
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.hosts:
            return
        for number, name in enumerate(self.hosts, start=1):
            host_name(name, f"hosts: name {number}")
        if len(self.hosts) != (count := len(self.machines)):
            each = "nodes" if count == self.cluster.num_nodes else "machines"
            raise DataError(f"hosts: {len(self.hosts)} names, expected one for each of {count} {each}")
        if twice := [name for name in self.hosts if self.hosts.count(name) > 1]:
            raise DataError(f"hosts: {twice[0]} stands twice, expected every name once")

    @cached_property
    def cluster(self) -> ClusterSpec:
        """The cluster that the plan describes."""
        return described_cluster(self.plan.typed)

    @cached_property
    def machines(self) -> list[NodeSpec]:
        """The group of every machine on which processes start: a rack of an NVLink domain has several."""
        return self.cluster.machine_list

    @cached_property
    def model(self) -> ModelSpec:
        """The model that the plan describes."""
        return described_model(self.plan.typed)

    @cached_property
    def memory(self) -> MemoryModel:
        """The memory model, which states precisions."""
        return MemoryModel.parse(self.plan.typed.inputs["memory_model"].spec, "inputs.memory_model")

    @property
    def strategy(self) -> StrategySection:
        """Degrees, micro-batch, schedule, stages and recompute."""
        return self.plan.strategy

    @cached_property
    def devices(self) -> Ints:
        """Device of every process, (1): (processes,)."""
        return np.array(self.plan.devices, dtype=np.int64).ravel()

    @cached_property
    def _first(self) -> Ints:
        """First device of every machine, and the number of devices at last."""
        sizes = [node.machine_size for node in self.machines]
        return np.concatenate(([0], np.cumsum(sizes)))

    @cached_property
    def nodes(self) -> Ints:
        """Machine of every process (processes,), which launchers call a node."""
        return np.searchsorted(self._first, self.devices, side="right") - 1

    @cached_property
    def gpus(self) -> Ints:
        """GPU of every process on its machine (processes,)."""
        return self.devices - self._first[self.nodes]

    @cached_property
    def host_names(self) -> tuple[str, ...]:
        """Names of all machines."""
        return self.hosts or tuple(f"node-{number}" for number in range(len(self.machines)))

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        chosen = self.strategy
        return chosen.dp * chosen.micro_batch * chosen.num_micro_batches

    @property
    def context_sizes(self) -> tuple[int, int]:
        """Context ranks of a replica on a node, and nodes that it is on."""
        inner = inner_contexts(
            self.strategy.tp, self.strategy.cp, max(node.gpus_per_node for node in self.cluster.nodes)
        )
        return inner, self.strategy.cp // inner

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return max(layer.seq for layer in self.model.blocks)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of every chunk, in the order in which a micro-batch visits them."""
        return tuple(end - first for first, end in self.strategy.stages)

    @property
    def forms(self) -> list[str]:
        """Forms of division that the plan's stack states (``taut.data.stack``)."""
        forms: list[str] = self.plan.certificate.space.get("divisions", [ANY_DIVISION])
        return forms

    @property
    def is_even(self) -> bool:
        """Whether all chunks have as many layers."""
        return len(set(self.layers)) == 1

    @cached_property
    def is_node_major(self) -> bool:
        """Whether the processes of every machine have consecutive numbers."""
        changes = int(np.count_nonzero(np.diff(self.nodes)))
        return changes + 1 == len(set(self.nodes.tolist()))

    def node_order(self) -> list[int]:
        """Machines in the order of their first processes."""
        return list(dict.fromkeys(self.nodes.tolist()))

    def refuse(self, reasons: Mapping[str, bool]) -> None:
        """Refuse the plan for the first reason that holds, said with the nearest plan that the launcher can run."""
        for words, holds in reasons.items():
            if holds:
                raise ExportError(f"{self.plan.source}: {words}")

    def recompute(self, launcher: str) -> str:
        """The one kind of recompute of all stages, as launchers have one setting for all; refuses others."""
        kinds = sorted(set(self.strategy.recompute))
        words = f"stages recompute differently ({' and '.join(kinds)}), which {launcher} cannot; plan with --stack "
        self.refuse({f"{words}megatron-core, or with --fix recompute={kinds[-1]}": len(kinds) > 1})
        return kinds[0]

    def whole_layers(self, launcher: str) -> str:
        """The same of launchers that recompute all layers of a chunk or none; refuses a chunk's first layers alone."""
        words = f"{block_words(self.strategy.recompute_layers)}, which {launcher} cannot; plan without block_recompute"
        self.refuse({words: self.strategy.recompute_layers > 0})
        return self.recompute(launcher)

    @property
    def recompute_modules(self) -> list[str]:
        """Modules of selective recompute; the attention core where the plan names none."""
        return list(self.plan.certificate.space.get("recompute_modules", ())) or ["core_attn"]

    @property
    def states_on_hosts(self) -> float:
        """Share of the optimizer states in the host's memory."""
        return states_share(self.strategy, self.plan.typed.inputs["memory_model"].spec)

    @property
    def activations_on_hosts(self) -> float:
        """Share of the activations, or of the inputs of ``offload_modules``, in the host's memory."""
        return activations_share(self.strategy)

    @property
    def offload_modules(self) -> list[str]:
        """Modules whose inputs are in the host's memory; none where the plan has none there."""
        return list(self.plan.certificate.space.get("offload_modules", ())) if self.activations_on_hosts else []

    @cached_property
    def dispatch(self) -> DispatchSpec:
        """How the plan's expert ranks exchange tokens."""
        return DispatchSpec.parse(self.plan.certificate.space.get("dispatch", {}), "certificate.space.dispatch")

    @property
    def hides_exchange(self) -> bool:
        """Whether the plan counts on exchanges of experts beside another micro-batch."""
        chosen = self.strategy
        return self.dispatch.overlap and chosen.ep > 1 and (chosen.pp == 1 or chosen.vpp > 1)

    @property
    def features(self) -> list[str]:
        """What the runs behind the prices had switched on, as far as the plan can have it."""
        section = self.plan.typed.inputs.get("calibration")
        stated = section.spec.get("features", []) if section else []
        found = features_of(stated, self.strategy, self.strategy.recompute)
        # Megatron-LM keeps whole weights where the host updates them.
        return [one for one in found if not (one == FP8_GATHERS and self.states_on_hosts)]

    @property
    def fused_loss(self) -> LossKind:
        """How the plan computes the loss."""
        section = self.plan.typed.inputs.get("calibration")
        stated = as_loss(section.spec.get("fused_loss", "none")) if section else self.memory.fused_loss
        return next(loss for loss in LOSSES if loss == stated)

    def plain_layers(self, launcher: str) -> None:
        """Refuse layers that no flag of a launcher describes: listed ones, or attention with a gate or an indexer."""
        model, others = self.model, "nearest: the torch-csv, slurm and rankfile exports"
        gated = any(layer.attention_gate for layer in model.blocks)
        indexed = any(layer.latent and layer.latent.index_heads for layer in model.blocks)
        words = (
            f"attention of {model.name} has {'a gate' if gated else 'an indexer'}, for which taut writes no settings "
        )
        further = f"further tokens with mtp_kinds or mtp_repeated, for which taut writes no settings of {launcher}"
        listed = f"model {model.name} lists layers of several shapes, which {launcher} has no settings for, expected a "
        self.refuse(
            {
                f"{words}of {launcher}; {others}": gated or indexed,
                f"{listed}number of layers; {others}": isinstance(model.layers, list),
                f"{further}; {others}": model.mtp_layers > 0 and bool(model.mtp_kinds or model.mtp_repeated),
            }
        )


DENSE = ("rank", "host", "gpu", "device", "stage", "replica", "context_rank", "tensor_rank")
EXPERTS = ("expert_copy", "expert_rank", "expert_tensor_rank")
"""Columns of ``ranks.csv``: of every plan, and further ones of models with experts."""


def gpu_lines(job: Job) -> dict[str, str]:
    """The wrapper, and the GPU of every process on its node, a line each."""
    return {"process.sh": template("process.sh"), "gpus.txt": "".join(f"{gpu}\n" for gpu in job.gpus.tolist())}


def rank_table(job: Job) -> str:
    """Every process with its host, GPU, device of the cluster, and ranks, those of experts where there are some."""
    chosen = job.strategy
    experts = _expert_grid(chosen) if job.model.has_experts else ()
    rows: list[tuple[object, ...]] = [(*DENSE, *(EXPERTS if experts else ()))]
    for rank, (device, node, gpu) in enumerate(zip(job.devices, job.nodes, job.gpus, strict=True)):
        dense = np.unravel_index(rank, (chosen.pp, chosen.dp, chosen.cp, chosen.tp))
        routed = np.unravel_index(rank, (chosen.pp, *experts))[1:] if experts else ()
        rows.append((rank, job.host_names[node], gpu, device, *dense, *routed))
    return csv_text(rows)


def _expert_grid(chosen: StrategySection) -> tuple[int, int, int]:
    """Copies of the experts, expert ranks, and expert tensor ranks of a stage, (2)."""
    etp = chosen.etp or chosen.tp
    return chosen.dp * chosen.cp * chosen.tp // (chosen.ep * etp), chosen.ep, etp


def rank_files(job: Job) -> dict[str, str]:
    """Rankfile, hosts of the processes, start script, and GPUs of the processes."""
    names = [job.host_names[node] for node in job.nodes.tolist()]
    lines = [f"rank {rank}={name} slot={gpu}\n" for rank, (name, gpu) in enumerate(zip(names, job.gpus, strict=True))]
    start = template("mpirun.sh") % (shell_word(names[0]), len(names))
    hosts = "".join(f"{name}\n" for name in names)
    return {"rankfile": "".join(lines), "hosts.txt": hosts, "mpirun.sh": start} | gpu_lines(job)


def torchrun_script(job: Job) -> str:
    """The script that starts one node's processes."""
    names = [job.host_names[node] for node in job.node_order()]
    lines, run, many = _single_line, "torchrun_gpus.sh", len(job.devices)
    if job.is_node_major:
        lines, run, many = _whole_line, "torchrun_nodes.sh", len(names)
    cases = "".join(f"  {shell_word(name)}) {lines(job, number)} ;;\n" for number, name in enumerate(names))
    head = template("torchrun.sh") % (shell_word(names[0]), shell_word(_span(names)), cases)
    return head + template(run) % many


def _whole_line(job: Job, number: int) -> str:
    """Number of a node, its processes, and their GPUs."""
    gpus = job.gpus[job.nodes == job.node_order()[number]].tolist()
    return f"rank={number}; count={len(gpus)}; gpus={','.join(map(str, gpus))}"


def _single_line(job: Job, number: int) -> str:
    """Processes of a node with their GPUs."""
    ranks = np.flatnonzero(job.nodes == job.node_order()[number]).tolist()
    return 'places="' + " ".join(f"{rank}:{job.gpus[rank]}" for rank in ranks) + '"'


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def slurm_files(job: Job) -> dict[str, str]:
    """Job script, hosts or nodes of the processes, and their GPUs."""
    used = sorted(set(job.nodes.tolist()))
    script = template("slurm.sh").format(
        nodes=len(used),
        processes=len(job.devices),
        gpus=max(job.machines[node].machine_size for node in used),
        nodelist=f"#SBATCH --nodelist={','.join(job.host_names[node] for node in used)}\n" if job.hosts else "",
        hosts='export SLURM_HOSTFILE="$here/hosts.txt"\n' if job.hosts else template("slurm_hosts.sh"),
    )
    places = {node: place for place, node in enumerate(used)}
    names = [job.host_names[node] if job.hosts else str(places[node]) for node in job.nodes.tolist()]
    listed = "".join(f"{name}\n" for name in names)
    return {"slurm.sh": script, ("hosts.txt" if job.hosts else "nodes.txt"): listed} | gpu_lines(job)
