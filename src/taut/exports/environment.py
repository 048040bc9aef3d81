"""
Environment variables that a framework asks for.

Megatron-LM refuses tensor or context ranks unless ``CUDA_DEVICE_MAX_CONNECTIONS`` is 1, which keeps its kernels in the
order in which they were launched, and refuses its FSDP if it is (megatron/training/arguments.py). From Blackwell on
the first demand is gone. Exchanges of experts run beside computation with more connections alone (Megatron-LM's pull
request 6311: with one, half of the gain is lost). Beside offload of modules Megatron-LM asks for Transformer
Engine's first code for it, as the second takes weights for activations (megatron/training/arguments.py).
"""

from taut.exports.job import Job

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
