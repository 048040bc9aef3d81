"""
Environment variables that a framework asks for.

Megatron-LM refuses tensor or context ranks unless ``CUDA_DEVICE_MAX_CONNECTIONS`` is 1, which keeps its kernels in the
order in which they were launched, and refuses its FSDP if it is (megatron/training/arguments.py). From Blackwell on
the first demand is gone. Exchanges of experts run beside computation with more connections alone (Megatron-LM's pull
request 6311: with one, half of the gain is lost).
"""

from taut.exports.job import Job

ORDERED, FSDP = "1", "32"


def environment(job: Job) -> dict[str, str]:
    """
    Variables of a job, by name.

    Parameters
    ----------
    job
        What is launched.
    """
    chosen = job.strategy
    values = {"OMP_NUM_THREADS": "1"}
    if chosen.zero >= 2 or (job.hides_exchange and chosen.tp == chosen.cp == 1):
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = FSDP
    elif chosen.tp > 1 or chosen.cp > 1:
        values["CUDA_DEVICE_MAX_CONNECTIONS"] = ORDERED
    return values


def environment_file(job: Job) -> str:
    """The variables as lines that a shell reads."""
    return "".join(f"export {name}={value}\n" for name, value in environment(job).items())
