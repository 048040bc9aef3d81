"""
Write the files that launch a plan.

A target is a framework (``FRAMEWORKS``), the order of passes (``torch-csv``), or what starts processes (``torchrun``,
``slurm``, ``rankfile``). There is one framework at most. Without a target that starts processes, torchrun starts them,
and Ray those of verl. Beside a target's own files stand ``env.sh``, ``ranks.csv``, ``plan.json`` and ``launch.md``,
which says what to run where, and what to check before. What is written of a plan is quoted (``taut.quoting``).
``chakra`` stands alone: traces of a step, which launch nothing (``taut.exports.chakra``).

A plan's file comes from anywhere, so it is checked before anything of it is used. Inputs and space have to be what
their digests say, names to be names, and strategy and placement to keep the rules of the stated problem. Then every
word that a launcher reads is one of the words that taut knows, or a number. Whether the bound holds is another
question, which ``taut verify`` answers.

Frameworks ask for environment variables. Megatron-LM refuses tensor or context ranks unless
``CUDA_DEVICE_MAX_CONNECTIONS`` is 1, which keeps its kernels in the order in which they were launched, and refuses its
FSDP if it is (megatron/training/arguments.py). From Blackwell on the first demand is gone, and NVIDIA's recipes have
32. Exchanges of experts run beside computation with more connections alone (Megatron-LM's pull request 6311: with one,
half of the gain is lost). HybridEP asks how many ranks of an expert group share an NVLink domain, and, of a domain of
several machines, for its size (Megatron-Bridge, scripts/performance/utils/utils.py of August 2026). Beside offload of
modules Megatron-LM asks for Transformer Engine's first code for it, as the second takes weights for activations
(megatron/training/arguments.py). PyTorch's allocator grows its segments: a plan fills the memory to its margin, which
leaves no room for fragments. torchtitan's run_train.sh and NVIDIA's recipes do so. ``USUAL`` is what else all recipes
of NVIDIA set (Megatron-Bridge, src/megatron/bridge/recipes/utils/environment_utils.py and perf_recipes/llama of August
2026).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from taut.data.calibration import BETWEEN_REPLICAS, HYBRID_RUNS, OVERLAPPED
from taut.data.device import QUANTIZED
from taut.data.spec import with_names
from taut.data.suggest import one_of
from taut.errors import DataError
from taut.exports.architecture import HYBRID, backend_of
from taut.exports.arguments import primus_files, verl_files
from taut.exports.chakra import chakra_files
from taut.exports.deepspeed import deepspeed_files
from taut.exports.flagscale import flagscale_files, mesh_files
from taut.exports.job import ExportError, Job, rank_files, rank_table, slurm_files, torchrun_script
from taut.exports.megatron import RECIPES, bridge_files, flags_text, megatron_flags
from taut.exports.torchtitan import schedule_csv, torchtitan_files
from taut.files import template, uninterrupted, write_atomically
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import FIELDS
from taut.planning.plan import Plan
from taut.planning.tables import batch_words
from taut.quoting import json_text, markdown_text, shell_word
from taut.solver.certificate.document import (
    AnyDocument,
    MeshDocument,
    check_stages,
    devices_of,
    mesh_plan_of,
    problem_of,
)
from taut.solver.certificate.examined import Examined, case_of
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.verify import input_faults
from taut.words import percent


@cache
def _texts() -> dict[str, dict[str, str]]:
    """What ``launch.md`` says, by part and by what it is about."""
    texts: dict[str, dict[str, str]] = yaml.safe_load(template("launch.yaml"))
    return texts


def launch_notes(job: Job, framework: str, targets: list[str]) -> str:
    """What to run and what to check, in ten lines, of a framework (or none) and all targets."""
    starts, scripts, checks = (_texts()[part] for part in ("starts", "scripts", "checks"))
    script, pp, gap = scripts.get(framework, "YOUR-SCRIPT.py"), job.strategy.pp, job.plan.certificate.gap
    stages, name = f"{pp} stage{'s' * (pp > 1)}", markdown_text(f"{job.plan.model} on {job.plan.cluster}")
    beyond = "" if gap is None else f", at most {percent(gap)} above what is possible at the plan's prices"
    lines = [
        f"# {name}: {stages}, {len(job.devices)} processes",
        "",
        f"Predicted: {job.plan.step_time_s:.4g} s a step{beyond}. `taut verify plan.json` derives this again.",
        "",
        "Copy this folder to every node, at the same place. Start",
        *(f"- {starts[name].format(script=script)}" for name in targets if name in starts),
        "",
        "Check first",
        *(f"- {checks[name]}" for name in targets if name in checks),
        *(f"- {line}" for line in _checks(job, framework, targets)),
    ]
    return "\n".join(lines) + "\n"


def _checks(job: Job, framework: str, targets: list[str]) -> list[str]:
    chosen, predicted = job.strategy, job.plan.predicted
    count = chosen.num_micro_batches
    fullest = max(predicted.memory_bytes) / 2**30
    return [
        *_said(job, framework),
        f"hosts are {_hosts(job, targets)}; ranks.csv says which process is on which GPU, and env.sh what is exported",
        f"the placement counts on links as in the plan: {_each(job)} i of {markdown_text(job.plan.cluster)} is host i",
        *_segments(job, targets),
        f"the fullest device is predicted to hold {fullest:.1f} GiB; precision {job.memory.precision}",
        f"batch {job.global_batch} of {job.sequence} tokens: {chosen.dp} replica{'s' * (chosen.dp > 1)}, "
        + (
            f"micro-batches of {chosen.micro_batch}, {batch_words(chosen)}"
            if chosen.micro_batches
            else f"{count} micro-batch{'es' if count > 1 else ''} of {chosen.micro_batch}"
        ),
    ]


def _said(job: Job, framework: str) -> list[str]:
    """What to check where something holds of the plan, in words."""
    measured, is_megatron = framework in NVIDIA, framework == "megatron"
    holds: dict[str, bool] = {
        "own-flags": is_megatron,
        "narrow-base": framework == "torchtitan" and job.memory.precision in QUANTIZED,
        "tensor-ranks": framework == "deepspeed" and job.strategy.tp > 1,
        **{feature: measured and feature in job.features for feature in (BETWEEN_REPLICAS, OVERLAPPED)},
        "even-routing": measured and job.strategy.ep > 1,
        "deepep-instead": HYBRID_RUNS in job.features and backend_of(job) == "deepep",
        "full-scores": is_megatron and backend_of(job) != "" and not job.dispatch.router_dtype,
        "copied-weights": _copies_weights(job, framework),
        "refused-loss": is_megatron and job.fused_loss == "te",
    }
    figures = {"vocab": job.model.vocab, "precision": job.memory.precision, "tp": job.strategy.tp}
    return [_texts()["said"][name].format(**figures) for name, it in holds.items() if it]


def _copies_weights(job: Job, framework: str) -> bool:
    """Whether products keep copies of weights in a narrow format that Megatron-LM cannot do without."""
    narrow, sharded = job.memory.precision in QUANTIZED, job.strategy.zero > 0 and not job.states_on_hosts
    return framework == "megatron" and narrow and not (sharded and job.memory.precision in RECIPES)


def _hosts(job: Job, targets: list[str]) -> str:
    """Where the names of hosts come from."""
    if job.hosts:
        return "as given"
    allocated = "Slurm's, in the order of the allocation; in the other files " if "slurm" in targets else ""
    return f"{allocated}placeholders: write them by hand or give --hosts"


def _segments(job: Job, targets: list[str]) -> list[str]:
    """What to ask Slurm for where an NVLink domain spans machines."""
    sizes = {node.machines for node in job.cluster.nodes}
    if "slurm" not in targets or _each(job) == "node" or len(sizes) > 1:
        return []
    (size,) = sizes
    return [f"every {size} machines share an NVLink domain: ask for them together, by sbatch --segment={size}"]


def _each(job: Job) -> str:
    """What a host is in the cluster: a node, or one machine of several that an NVLink domain spans."""
    return "node" if len(job.machines) == job.cluster.num_nodes else "machine"


NVIDIA = ("megatron", "megatron-bridge")
"""Frameworks of NVIDIA's recipes."""
ORDERED, FSDP = "1", "32"
USUAL = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "20",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "20",
}
"""Variables of NVIDIA's recipes: collectives first, without NVLink's multicast, and on processors left to them."""


def environment(job: Job, framework: str = "megatron") -> dict[str, str]:
    """Variables of a job, by name."""
    chosen = job.strategy
    # Graphs of kernels on such segments need the second variable (megatron/training/arguments.py).
    values = {"OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "NCCL_GRAPH_REGISTER": "0"}
    values |= USUAL if framework in NVIDIA else {}
    blackwell = all("nvfp4" in node.device.peak_tflops for node in job.cluster.nodes)
    if chosen.zero >= 2 or (job.hides_exchange and chosen.tp == chosen.cp == 1):
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = FSDP
    elif chosen.tp > 1 or chosen.cp > 1:
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = FSDP if blackwell else ORDERED
    if job.offload_modules:
        values["NVTE_CPU_OFFLOAD_V1"] = "1"
    if backend_of(job) == HYBRID:
        domain = max(node.gpus_per_node for node in job.cluster.nodes)
        values["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = str(min(chosen.ep * (chosen.etp or chosen.tp), domain))
        if _each(job) == "machine":
            values |= {"NVLINK_DOMAIN_SIZE": str(domain), "USE_MNNVL": "1"}
    return values


Files = dict[str, str]
CHAKRA = "chakra"
"""Traces of a step, which launch nothing and stand alone."""
FRAMEWORKS: dict[str, Callable[[Job], Files]] = {
    "megatron": lambda job: {"megatron.args": flags_text(megatron_flags(job))},
    "megatron-bridge": bridge_files,
    "torchtitan": torchtitan_files,
    "deepspeed": deepspeed_files,
    "flagscale": flagscale_files,
    "primus": primus_files,
    "verl": verl_files,
}
ORDERS: dict[str, Callable[[Job], Files]] = {"torch-csv": lambda job: {"schedule.csv": schedule_csv(job)}}
STARTERS: dict[str, Callable[[Job], Files]] = {
    "torchrun": lambda job: {"torchrun.sh": torchrun_script(job)},
    "slurm": slurm_files,
    "rankfile": rank_files,
}
TARGETS = FRAMEWORKS | ORDERS | STARTERS


def export(
    plan: Plan | str | Path,
    to: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    hosts: Sequence[str] = (),
    force: bool = False,
) -> list[Path]:
    """
    Write the files that launch a plan to a folder.

    Parameters
    ----------
    plan
        A plan, or the file of one.
    to
        Targets: at most one framework, and any other targets; or ``chakra`` alone.
    out
        Folder; it is made, and has to be empty without ``force``.
    hosts
        Names of the cluster's nodes in its order; without them placeholders stand for them.
    force
        Whether files in the folder may be replaced.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    DataError
        If a target is unknown, the folder is not empty, the plan's file contradicts itself or breaks a rule, or the
        launcher cannot run the plan.

    Examples
    --------
    >>> import tempfile
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print([path.name for path in taut.export(plan, "megatron", folder)])
    ['megatron.args', 'torchrun.sh', 'env.sh', 'ranks.csv', 'plan.json', 'launch.md']
    """
    targets, folder = [to] if isinstance(to, str) else list(to), Path(out)
    files = _files(plan, targets, tuple(hosts))
    _check_folder(folder, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    with uninterrupted():
        for name, content in files.items():
            write_atomically(folder / name, content)
    return [folder / name for name in files]


def _files(plan: Plan | str | Path, targets: list[str], hosts: tuple[str, ...]) -> Mapping[str, str | bytes]:
    """What files hold, by name, of an ordinary plan or one of meshes."""
    if not isinstance(plan, Plan):
        plan = Plan.read(plan)
    _check_plan(plan)
    if CHAKRA in targets and len(targets) > 1:
        raise DataError(f"--to {','.join(targets)}: {CHAKRA} launches nothing, expected it alone")
    if not plan.meshes:
        if targets == [CHAKRA]:
            return chakra_files(Job(plan, hosts))
        return launch_files(Job(plan, hosts), targets)
    if targets != ["flagscale"]:
        raise DataError(f"--to {','.join(targets)}: cannot launch a plan of meshes, expected flagscale alone")
    return mesh_files(plan, hosts)


def launch_files(job: Job, targets: list[str]) -> Files:
    """Texts of all files by name; refuses targets that do not go together or cannot be told the plan's fields."""
    for name in targets:
        if name not in TARGETS:
            raise DataError(f"--to {name}: expected {one_of(name, (*TARGETS, CHAKRA))}")
    frameworks = [name for name in targets if name in FRAMEWORKS]
    if len(frameworks) > 1 or not targets:
        raise DataError(f"--to {','.join(targets)}: expected one framework at most, and at least one target")
    framework = "".join(frameworks)
    starters = STARTERS.keys() & {*targets}
    if starters and framework == "verl":
        raise DataError(f"--to {','.join(targets)}: Ray starts verl's processes, expected no {min(starters)}")
    targets = list(dict.fromkeys(targets if starters or framework == "verl" else [*targets, "torchrun"]))
    values = job.strategy.candidate.as_dict()
    if unknown := [f"{name}={value}" for name, value in values.items() if not FIELDS[name].launched]:
        raise ExportError(f"{job.plan.source}: {', '.join(unknown)}, which no launcher here can be told")
    if job.strategy.uneven_batch and {*targets} - {*STARTERS}:
        reason = "its replicas divide the batch unevenly, which no launcher here does"
        raise ExportError(f"{job.plan.source}: {reason}; plan with --fix uneven_batch=false")
    if framework:
        _check_told(job, framework)
    files = dict[str, str]()
    for name in targets:
        files |= TARGETS[name](job)
    exported = (f"export {name}={shell_word(value)}\n" for name, value in environment(job, framework).items())
    return files | {
        "env.sh": "".join(exported),
        "ranks.csv": rank_table(job),
        "plan.json": json_text(job.plan.document),
        "launch.md": launch_notes(job, framework, targets),
    }


def _check_told(job: Job, framework: str) -> None:
    """Refuse an encoder or an optimizer that taut tells one framework alone, beside another."""
    told = {"encoder of images": "megatron-bridge"} if job.model.encoder else {}
    told |= {f"optimizer {job.memory.optimizer}": "megatron"} if job.memory.optimizer != "adam" else {}
    if {*told.values()} - {framework}:
        expected = f"--to {' or '.join(told.values())}" if len(told) == 1 else "one of them: no framework is told both"
        raise ExportError(f"{job.plan.source}: {' and '.join(told)}, expected {expected}")


def _check_folder(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file, expected a folder")
    if folder.is_dir() and not force and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty, expected an empty or new folder, or --force")


def _check_plan(plan: Plan) -> None:
    """Refuse a plan with an input that is not what its digest says, a name that is none, or a rule that it breaks."""
    document, source = plan.sections, plan.source
    problem = problem_of(document, source)
    for role in (problem.model, problem.cluster, problem.costs, problem.memory, problem.calibration):
        if role is not None:
            with_names(role, source)
    if faults := input_faults(document, problem) or _rules_broken(document, problem, source):
        raise DataError(f"{source}: {faults[0]}; not exported, as the plan contradicts itself")


def _rules_broken(document: AnyDocument, problem: PlanningProblem, source: str) -> list[str]:
    """What is wrong with strategy and placement, one line each."""
    if isinstance(document, MeshDocument):
        mesh_plan_of(document, problem, source)
        return []
    check_stages(document.strategy, source)
    case = case_of(problem)
    placed = Examined.of_section(case, document.strategy, devices_of(document, source))
    if placed.choice not in candidates(case):
        return [f"strategy {placed.choice} is not a candidate of the stated space"]
    return placed.violations
