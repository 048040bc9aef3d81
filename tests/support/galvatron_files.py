"""A folder of Galvatron's files: a plan of GPT-2 345M on two devices, with the profiles that its search was given."""

import json
from pathlib import Path

NAME = "galvatron_config_gpt2-345m_1nodes_2gpus_per_node_8GB_bf16.json"
LAYERS = 24


def by_layer(*flags: int) -> str:
    """An entry of a plan: what is given for the first layers, and the last of it for the others."""
    return ",".join(map(str, [*flags, *[flags[-1]] * (LAYERS - len(flags))]))


PLAN = {
    "pp_deg": 1,
    "tp_sizes_enc": by_layer(1),
    "tp_consecutive_flags": by_layer(1),
    "dp_types_enc": by_layer(1),
    "use_sp": by_layer(0),
    "checkpoint": by_layer(1),
    "global_bsz": 2,
    "chunks": 1,
    "pp_division": str(LAYERS),
    "default_dp_type": "zero2",
    "vtp": 1,
    "vsp": 0,
    "embed_sdp": 1,
}
TIMES = {f"{kind}_bsz{b}_seq128": (2 * b + 1) / b for kind in ("layertype_0", "layertype_other") for b in range(1, 9)}
CUT = {f"layernum[{n}]_bsz{b}_seq128": (n + 1) * (2 * b + 1.0) for n in (1, 2) for b in range(1, 9)}
ENDS = {"model_states": {"1": 160.0, "2": 80.0}, "activation": {"1": 4.0, "2": 2.0}}
LAYER = {"parameter_size": 40.0, "tp_activation_per_bsz_dict": {"1": 6.0, "2": 3.0, "checkpoint": 1.0}}
MEASURED = {f"layernum[{n}]_bsz2_seq128_rank0_act": 4.0 + 6.0 * n for n in (1, 2)}
MEMORY = {
    "1_1_2_sp": MEASURED,
    "1_1_2_c_sp": {key: value / 2 for key, value in MEASURED.items()},
    "layertype_0_sp": {"128": LAYER},
    **{f"other_memory_{name}_sp": {"128": ENDS} for name in ("pp_off", "pp_on_first", "pp_on_last")},
}
MESSAGES = {f"{kind}_size_2_{2**k}MB_time": float(2**k) for kind in ("allreduce", "all2all") for k in range(8)}


def write_folder(folder: Path) -> Path:
    """Write all files."""
    files = {
        f"gpt_configs/{NAME}": PLAN,
        "gpt_configs/computation_profiling_bf16_gpt2-345m_all.json": {**TIMES, **CUT},
        "gpt_configs/memory_profiling_bf16_gpt2-345m_all.json": MEMORY,
        "hardware_configs/allreduce_bandwidth_1nodes_2gpus_per_node.json": {"allreduce_size_2_consec_1": 100.0},
        "hardware_configs/p2p_bandwidth_1nodes_2gpus_per_node.json": {"pp_size_2": 50.0},
        "hardware_configs/sp_time_1nodes_2gpus_per_node.json": MESSAGES,
        "hardware_configs/overlap_coefficient.json": {"overlap_coe": 1.2},
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder
