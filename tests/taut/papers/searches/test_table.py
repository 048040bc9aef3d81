"""Published plans in small tables: what is read of them, and their distance from the bound."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from taut.commands.app import app
from taut.errors import DataError
from taut.papers.searches import table
from taut.papers.searches.published_plans import BRIDGE, MLPERF, NVIDIA, RECIPES, published_plans
from taut.papers.searches.table import Row, Table, reproduce_searches

NVIDIA_ROWS = """# a comment
model,precision,n_gpus,tp,pp,cp,vp,mbs,gbs,layers_override,step_s
llama3.1_8b,BF16,8,1,1,2,n/a,1,128,,12.9
llama3.1_8b,BF16,8,1,1,2,n/a,1,128,,13.1
llama3.1_8b,FP8,8,1,1,1,n/a,1,128,,9.0
llama3.1_405b,BF16,64,8,8,1,2,1,64,32,9.0
deepseek_v3,BF16,256,1,4,1,n/a,1,2048,,20.0
nemo_megatron_175b,BF16,128,4,8,1,12,1,256,,8.9
"""
MLPERF_ROWS = """round,submitter,benchmark,gpu,n_gpus,tp,pp,cp,vpp,mbs,gbs,seq,precision,step_s_median
v5.0,NVIDIA,llama31_405b,NVIDIA H100-SXM5-80GB,2048,8,8,2,8,1,1152,8192,fp8,14.2
v5.0,NVIDIA,llama31_405b,NVIDIA GB200,2048,8,8,2,8,1,1152,8192,fp8,7.0
v5.1,Cisco,llama31_8b,NVIDIA H100-SXM5-80GB,128,2,1,1,1,1,64,8192,fp8,1.0
"""


BRIDGE_ROWS = """# a comment
container,system,model,n_gpus,precision,gbs,mbs,seq,tp,pp,cp,vp,ep,tokens_per_s_per_gpu
26.08,DGX-GB200,DeepSeekV3,256,MXFP8,4096,1,4096,1,4,1,4,64,4912
26.06,DGX-GB200,DeepSeekV3,256,MXFP8,4096,1,4096,1,4,1,4,64,4928
26.08,DGX-GB200,Qwen3_30B_a3B,8,MXFP8,512,4,4096,1,1,1,n/a,8,39936
26.04,DGX-H100,Qwen3_235B_a22B,256,FP8,8192,1,4096,2,8,1,4,32,"1,712 (1700)"
26.04,DGX-H100,Nemotron_3_Nano,8,FP8,512,1,8192,1,1,1,n/a,8,1
"""


RECIPE_COLUMNS = (
    "model,task,n_gpus,gpu,precision_tag,cpu_offloading,cpu_offloading_num_layers,global_batch_size,micro_batch_size,"
    "tensor_model_parallel_size,context_parallel_size,sequence_parallel"
)
RECIPE_ROWS = f"""# a comment
{RECIPE_COLUMNS}
llama3_70b,pretrain,64,gb200,fp8cs,True,40,256,2,1,1,False
llama3_70b,pretrain,64,gb200,bf16,True,20,256,1,1,1,False
llama3_70b,pretrain,32,gb200,bf16,True,20,256,1,1,1,False
llama3_70b,sft,64,gb200,bf16,True,20,256,1,1,1,False
llama3_70b,pretrain,64,gb200,fp8mx,,,256,1,2,1,False
llama31_405b,pretrain,128,b300,bf16,True,40,768,1,2,1,True
"""
SHARDED_ROWS = """container,system,model,n_gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,tokens_per_s_per_gpu
26.06,DGX-GB200,LLAMA3_70B,64,FP8,256,2,8192,0,1,4,1,5,n/a,5000
26.04.01,DGX-GB200,LLAMA3_70B,64,FP8,256,2,8192,64,1,1,1,n/a,n/a,4224
26.04,DGX-GB200,LLAMA3_70B,64,FP8,256,2,8192,64,1,1,1,n/a,n/a,4143
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Both tables."""
    (tmp_path / NVIDIA).write_text(NVIDIA_ROWS, encoding="utf-8")
    (tmp_path / MLPERF).write_text(MLPERF_ROWS, encoding="utf-8")
    return tmp_path


def test_dense_plans_on_h100_are_read(folder: Path) -> None:
    """Whole models in bf16, equal runs by their median, and MLPerf's large models on H100."""
    plans = list(published_plans(folder))
    assert [(each.who, each.model, each.gpus) for each in plans] == [
        ("NVIDIA", "llama3-8b", 8),
        ("NVIDIA", "gpt3-175b", 128),
        ("MLPerf v5.0 NVIDIA", "llama3-405b", 2048),
    ]
    assert plans[0].measured_s == pytest.approx(13.0)
    assert plans[0].fixed["schedule"] == "1f1b" and plans[0].fixed["cp"] == 2 and plans[0].fixed["zero"] == 1
    assert plans[1].fixed["schedule"] == "interleaved-1f1b" and plans[1].fixed["vpp"] == 12


def test_newest_plans_with_experts_are_read(tmp_path: Path) -> None:
    """Of every system and model the newest row, on whole nodes or NVLink domains, with expert degrees."""
    (tmp_path / BRIDGE).write_text(BRIDGE_ROWS, encoding="utf-8")
    first, second = published_plans(tmp_path)
    assert (first.who, first.model, first.cluster) == ("NVIDIA 26.08", "deepseek-v3", "gb200-nvl64:4")
    assert first.measured_s == pytest.approx(4096 * 4096 / (256 * 4912))
    assert (first.fixed["ep"], first.fixed["etp"], first.fixed["vpp"]) == (64, 1, 4)
    assert (second.model, second.cluster, second.precision) == ("qwen3-235b-a22b", "dgx-h100:32", "fp8")
    assert second.fixed["sequence_parallel"] and second.fixed["schedule"] == "interleaved-1f1b"
    row = Row(published=second, predicted_s=None, best="", best_s=None, lower_bound_s=90.0, differs="-")
    assert row.distance is None and "ep=32,etp=1" in row.command


def test_recipes_with_activations_on_hosts_are_read(tmp_path: Path) -> None:
    """Those for pre-training on whole machines, as shares of the layers; one has run in the table beside them."""
    (tmp_path / RECIPES).write_text(RECIPE_ROWS, encoding="utf-8")
    assert [each.measured_s for each in published_plans(tmp_path)] == [None, None, None]
    (tmp_path / BRIDGE).write_text(SHARDED_ROWS, encoding="utf-8")
    first, second, third = published_plans(tmp_path)
    assert (first.cluster, first.precision, first.activation_offload) == ("gb200-nvl64", "fp8", 0.5)
    assert first.measured_s == pytest.approx(256 * 8192 / (64 * 4224)) and second.measured_s is None
    assert (third.model, third.cluster, third.activation_offload) == ("llama3-405b", "dgx-b300:16", 40 / 126)
    assert third.fixed["sequence_parallel"] and third.fixed["zero"] == 3 and third.fixed["tp"] == 2
    row = Row(published=third, predicted_s=100.0, best="", best_s=99.0, lower_bound_s=98.0, differs="-")
    assert row.command.endswith("zero=3 --activation-offload-fraction 0.31746")


@pytest.mark.proof
def test_a_recipe_is_bounded_among_plans_with_its_share_and_without(tmp_path: Path) -> None:
    """A recipe that moves a quarter of the activations is no better than the bound, and its share is shown."""
    (tmp_path / RECIPES).write_text(
        f"{RECIPE_COLUMNS}\nllama3_70b,pretrain,64,gb200,bf16,True,20,256,1,1,1,False\n", encoding="utf-8"
    )
    (row,) = reproduce_searches(tmp_path, time_limit=5.0).rows
    assert row.predicted_s is not None and row.distance is not None and row.distance >= -1e-9
    assert "mb 1 ZeRO-3 offload 25 %" in str(reproduce_searches(tmp_path, time_limit=0.5))


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    """One line names the files that are known."""
    with pytest.raises(DataError, match=r"expected nvidia_dgxc_h100\.csv, mlperf_dense\.csv, megatron_bridge"):
        reproduce_searches(tmp_path)


def test_the_command_names_every_degree(folder: Path) -> None:
    """A row's command plans the published degrees alone."""
    given = next(published_plans(folder))
    row = Row(published=given, predicted_s=13.0, best="", best_s=12.5, lower_bound_s=12.5, differs="")
    assert row.distance == pytest.approx(0.04)
    assert row.command.startswith("taut plan llama3-8b dgx-h100 --global-batch 128 --seq 8192 --precision bf16")
    assert "tp=1,pp=1,cp=2,micro_batch=1,recompute=none,sequence_parallel=false,schedule=1f1b,zero=1" in row.command


def test_searches_that_a_limit_ended_are_marked(folder: Path) -> None:
    """The price of the published degrees and the gap of the best plan have a mark each, which a line explains."""
    given = next(published_plans(folder))
    whole = Row(published=given, predicted_s=13.0, best="pp 2", best_s=12.5, lower_bound_s=12.0, differs="-")
    words = str(Table((whole,)))
    assert " 13.00 s    pp 2" in words and "12.00 s  4.00 %  8.3 %" in words and "*" not in words
    words = str(Table((replace(whole, cut_off=(True, True)),)))
    assert " 13.00 s*   pp 2" in words and "12.00 s  4.00 %*  8.3 %" in words
    assert words.endswith("* a limit ended this search")


@pytest.mark.proof
def test_no_published_plan_is_below_the_bound(folder: Path) -> None:
    """NVIDIA's plan of Llama 3 8B is priced near its measured step, and no better than the bound."""
    found = reproduce_searches(folder, time_limit=20.0, only="llama3-8b")
    (row,) = found.rows
    assert row.distance is not None and row.distance >= -1e-9
    assert row.predicted_s == pytest.approx(13.0, rel=0.05)
    assert "llama3-8b" in str(found)
    runner = CliRunner()
    words = ["reproduce", "searches", "--data", str(folder), "--only", "nobody", "--json"]
    assert json.loads(runner.invoke(app, words).stdout) == {"rows": []}


def test_a_published_plan_that_is_the_best_known_says_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the search finds nothing faster in its time, the published plan is the best, and the bound stays."""
    slow, fast = (
        SimpleNamespace(step_time_s=s, lower_bound_s=12.0, predicted=SimpleNamespace(breakdown_s={"a": s}))
        for s in (14.0, 13.0)
    )
    monkeypatch.setattr(table, "_plan", lambda given, limit, **options: fast if "fix" in options else slow)
    monkeypatch.setattr(table, "is_cut_off", lambda plan: plan is slow)
    row = reproduce_searches(folder, only="llama3-8b").rows[0]
    assert (row.best, row.best_s, row.lower_bound_s, row.cut_off) == ("the same", 13.0, 12.0, (False, True))
    assert row.distance == pytest.approx(1 / 12)
