"""
Write the files that launch a plan.

A target is a framework (``megatron``, ``megatron-bridge``, ``torchtitan``, ``deepspeed``, ``flagscale``), an order of
passes (``torch-csv``), or what starts processes (``torchrun``, ``slurm``, ``rankfile``). Without one of the last,
torchrun starts them. Beside a target's own files stand ``env.sh``, ``ranks.csv``, ``plan.json`` and ``launch.md``.

Frameworks ask for environment variables. Megatron-LM refuses tensor or context ranks unless
``CUDA_DEVICE_MAX_CONNECTIONS`` is 1, which keeps its kernels in the order in which they were launched, and refuses its
FSDP if it is (megatron/training/arguments.py). From Blackwell on the first demand is gone. Exchanges of experts run
beside computation with more connections alone (Megatron-LM's pull request 6311: with one, half of the gain is lost).
Beside offload of modules Megatron-LM asks for Transformer Engine's first code for it, as the second takes weights for
activations (megatron/training/arguments.py).
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from taut.data.suggest import one_of
from taut.errors import DataError
from taut.exports.deepspeed import deepspeed_files
from taut.exports.flagscale import flagscale_files, mesh_files
from taut.exports.job import ExportError, Job
from taut.exports.megatron import flags_text, megatron_flags
from taut.exports.megatron_bridge import bridge_files
from taut.exports.notes import launch_notes
from taut.exports.pass_order import schedule_csv
from taut.exports.starters.processes import rank_table
from taut.exports.starters.rankfile import rank_files
from taut.exports.starters.slurm import slurm_files
from taut.exports.starters.torchrun import torchrun_script
from taut.exports.torchtitan import torchtitan_files
from taut.files import write_atomically
from taut.planning.plan import Plan

ORDERED, FSDP = "1", "32"


def environment(job: Job) -> dict[str, str]:
    """Variables of a job, by name."""
    chosen = job.strategy
    values = {"OMP_NUM_THREADS": "1"}
    if chosen.zero >= 2 or (job.hides_exchange and chosen.tp == chosen.cp == 1):
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = FSDP
    elif chosen.tp > 1 or chosen.cp > 1:
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = ORDERED
    if job.offload_modules:
        values["NVTE_CPU_OFFLOAD_V1"] = "1"
    return values


def environment_file(job: Job) -> str:
    """The variables as lines that a shell reads."""
    return "".join(f"export {name}={value}\n" for name, value in environment(job).items())


Files = dict[str, str]
FRAMEWORKS: dict[str, Callable[[Job], Files]] = {
    "megatron": lambda job: {"megatron.args": flags_text(megatron_flags(job))},
    "megatron-bridge": bridge_files,
    "torchtitan": torchtitan_files,
    "deepspeed": deepspeed_files,
    "flagscale": flagscale_files,
    "torch-csv": lambda job: {"schedule.csv": schedule_csv(job)},
}
STARTERS: dict[str, Callable[[Job], Files]] = {
    "torchrun": lambda job: {"torchrun.sh": torchrun_script(job)},
    "slurm": slurm_files,
    "rankfile": rank_files,
}
TARGETS = (*FRAMEWORKS, *STARTERS)


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
        Targets: at most one framework, and any that start processes.
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
        If a target is unknown, the folder is not empty, or the launcher cannot run the plan.

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
    for name, text in files.items():
        write_atomically(folder / name, text)
    return [folder / name for name in files]


def _files(plan: Plan | str | Path, targets: list[str], hosts: tuple[str, ...]) -> Files:
    """
    Texts by file name, of an ordinary plan or one of meshes.

    Raises ``DataError`` if a target does not run the plan.
    """
    if not isinstance(plan, Plan):
        plan = Plan.read(plan)
    if not plan.meshes:
        return launch_files(Job(plan, hosts), targets)
    if targets != ["flagscale"]:
        raise DataError(f"--to {','.join(targets)}: has one degree for all stages, expected flagscale alone for meshes")
    return mesh_files(plan, hosts)


def launch_files(job: Job, targets: list[str]) -> Files:
    """
    Texts by file name.

    Raises ``DataError`` if a target is unknown, two are frameworks, or the launcher cannot run the plan.
    """
    for name in targets:
        if name not in TARGETS:
            raise DataError(f"--to {name}: expected {one_of(name, TARGETS)}")
    frameworks = [name for name in targets if name in FRAMEWORKS]
    if len(frameworks) > 1 or not targets:
        raise DataError(f"--to {','.join(targets)}: expected one framework at most, and at least one target")
    framework = frameworks[0] if frameworks else ""
    starters = [name for name in targets if name in STARTERS] or ["torchrun"]
    if framework and job.strategy.uneven_batch:
        reason = "its replicas divide the batch unevenly, which no launcher here does"
        raise ExportError(f"{job.plan.source}: {reason}; plan with --fix uneven_batch=false")
    files = FRAMEWORKS[framework](job) if framework else {}
    for name in starters:
        files |= STARTERS[name](job)
    return files | {
        "env.sh": environment_file(job),
        "ranks.csv": rank_table(job),
        "plan.json": json.dumps(job.plan.document) + "\n",
        "launch.md": launch_notes(job, framework, starters),
    }


def _check_folder(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file, expected a folder")
    if folder.is_dir() and not force and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty, expected an empty or new folder, or --force")
