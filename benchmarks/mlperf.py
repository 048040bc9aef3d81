"""
MLPerf training's dense runs as rows that ``taut predict`` reads.

The folder of campaigns holds their file (it is no part of the project). What logs do not state is an assumption, named
here.
"""

from pathlib import Path
from typing import Any

from benchmarks.runs import SHAPES, Campaign, Line, accepted, lines_of

SOURCED = "OVERLAP_GRAD_REDUCE=True;FULL_CUDA_GRAPH=1"
"""
What config_common.sh and config_common_cg.sh set, which three files of the University of Florida (v5.1) source: the
flags of the rows are those of the files themselves, and lack the distributed optimizer, which all others state.
"""
BLACKWELL = {"B200": "b200", "B300": "b300", "GB200": "gb200", "GB300": "gb300"}


def mlperf(path: Path, kinds: dict[str, str]) -> Campaign:
    """
    MLPerf training's dense runs from published logs: NeMo, on the GPUs whose names have these words.

    Racks of GB200 and GB300 count as nodes of 64 GPUs, what NVLink spans of a rack in most runs. GPT-3's embedding is
    tied. A precision that is not stated is taken as fp8, and fp4 as NVFP4; gradients are summed in bf16
    (``grad_sync_dtype`` of ``conf/optim/distributed_fused_adam.yaml``), and weights in fp8 are gathered as such. Passes
    are launched as CUDA graphs where flags say so of the whole step or of layers, or come from the files that a
    configuration file sources.
    """
    rows = [values for line in lines_of(path) if (values := mlperf_row(line, kinds))]
    kept, left_out = accepted(rows)
    first = next(iter(kinds.values()))
    return Campaign(
        f"mlperf-{first}", "megatron-core", "", "MLPerf training v3.0 to v5.1, published logs", kept, left_out
    )


def mlperf_row(line: Line, kinds: dict[str, str]) -> dict[str, Any] | None:
    """One run of MLPerf as a row, or None if it is of another kind of GPU."""
    words = line["gpu"].replace("(", " ").replace(")", " ").replace("-", " ").split()
    gpu = next((kinds[word] for word in words if word in kinds), None)
    if gpu is None:
        return None
    known = {"gpt3": "gpt_175b", "llama31_405b": "llama3.1_405b", "llama31_8b": "llama3.1_8b"}
    shape = SHAPES[known[line["benchmark"]]]
    flags = line["flags"] if "USE_DIST_OPTIMIZER" in line["flags"] else f"{line['flags']};{SOURCED}"
    gpus, pp, vpp = int(line["n_gpus"]), int(line["pp"]), int(line["vpp"]) if int(line["pp"]) > 1 else 1
    sizes = even_stages(shape["layers"] + 2 * ("ASYM_PP_EMBED=True" in flags), pp * vpp)
    if "ASYM_PP_EMBED=True" in flags:
        sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] - 1
    return {
        "gpu": gpu,
        "n_gpus": gpus,
        "gpus_per_node": min(64, gpus) if gpu.startswith("gb") else line["gpus_per_node"],
        **shape,
        **{key: line[key] for key in ("tp", "pp", "cp", "dp", "seq")},
        "stages": " ".join(map(str, sizes)) if pp > 1 else "",
        "vpp": vpp,
        "micro_batch": line["mbs"],
        "global_batch": line["gbs"],
        "zero": 1,
        "sequence_parallel": int(line["tp"]) > 1,
        "overlap_grad_reduce": "OVERLAP_GRAD_REDUCE=True" in flags,
        "cuda_graphs": any(f"{kind}_CUDA_GRAPH={on}" in flags for kind in ("FULL", "MCORE") for on in ("1", "True")),
        "fp8_param_gather": any(f"{name}=True" in flags for name in ("FP8_PARAM_GATHER", "FP8_PARAMS")),
        "tied_embedding": line["benchmark"] == "gpt3",
        "precision": {"fp4": "nvfp4"}.get(line["precision"], "fp8"),
        "grad_precision": "bf16",
        "measured_s": line["step_s_median"],
    }


def even_stages(layers: int, chunks: int) -> list[int]:
    """Layers of chunks that differ by one at most."""
    return [layers // chunks + (chunk < layers % chunks) for chunk in range(chunks)]
