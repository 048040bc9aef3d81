"""
Galvatron's search (PKU-DAIR/Hetu-Galvatron, revision cea12ff) on the profiles that it ships, for Llama 2 7B.

Its formula is written again in ``taut.papers.galvatron``: the plan that its search writes is priced by both, and the
optimum of the formula is bounded. The search needs its compiled core in the checkout.
"""

import json
import re
import tempfile
from pathlib import Path

from benchmarks.peers.frame import Checkout, PeerRow, run_script, timed
from taut.data.readers.galvatron.profile import read_galvatron_plan
from taut.papers.galvatron import Setting, best_galvatron_plan
from taut.papers.searches.galvatron import plan_words, problem_of, seconds_of

CASES = ((16, 36),)
"""Global batch and GiB of a device."""
ABSENT = "triton,flash_attn,transformer_engine,apex,amp_C"
NAME = "galvatron_config_llama2-7b_1nodes_8gpus_per_node_{memory}GB_bf16.json"
FIGURE = re.compile(r"Minized timecost = ([\d.]+)")
SLACK = 1e-9


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each batch."""
    return [_row(given, batch, memory) for batch, memory in CASES if given.case in str(batch)]


def _row(given: Checkout, batch: int, memory: int) -> PeerRow:
    model, hardware = given.under("galvatron", "models", "gpt"), given.under("galvatron", "profile_hardware")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [
            "search_engine.profiling_info.time_profile_mode=batch", "SEQ_LENGTH=2048", f"MEMORY_CONSTRAINT={memory}",
            f"search_engine.batch_size_info.settle_bsz={batch}", f"LOG_DIR={folder}/logs",
            "search_engine.model_info.set_seqlen_manually=0",
            f"+search_engine.options_info.output_config_path={folder}",
        ]  # fmt: skip
        words = ["scripts/search_dist.yaml", *options]
        environment = {"PYTHONPATH": str(given.folder)}
        out, theirs = run_script(given, model / "search_dist.py", *words, absent=ABSENT, environment=environment)
        (written,) = folder.glob("galvatron_config*.json")
        (folder / "gpt_configs").mkdir()
        (folder / "hardware_configs").symlink_to(hardware / "hardware_configs")
        for path in (model / "configs").glob("*profiling*.json"):
            (folder / "gpt_configs" / path.name).symlink_to(path)
        path = folder / "gpt_configs" / NAME.format(memory=memory)
        path.write_text(json.dumps(json.loads(written.read_text(encoding="utf-8"))), encoding="utf-8")
        choice = read_galvatron_plan(path)
        problem = problem_of(path, choice)
        priced = seconds_of(path, problem, choice)
    found, ours = timed(lambda: best_galvatron_plan(problem, priced * (1 + SLACK)))
    figure = FIGURE.findall(out)
    return PeerRow(
        case=f"llama2-7b on 8 GPUs of {memory} GiB, batch {batch}",
        theirs=plan_words(Setting(choice.chunks, len(choice.division)), choice.layers, choice.vocabulary),
        predicted_s=float(figure[-1]) if figure else None,
        their_cpu_s=theirs,
        priced_s=priced,
        ours=plan_words(found.setting, found.layers, found.ends) if found.layers else "the same",
        best_s=min(found.seconds, priced),
        bound_s=min(found.lower_bound, priced),
        our_cpu_s=ours,
    )
