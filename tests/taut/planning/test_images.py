"""Plans of models with an encoder of images: words, effect of what is trained, exports, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.errors import DataError, FormulationError
from taut.exports.export import launch_files
from taut.exports.job import ExportError, Job
from taut.planning.summary import summary

SHAPE: dict[str, Any] = {"name": "m", "layers": 8, "hidden": 1024, "heads": 16, "seq": 2048, "vocab": 32000}
IMAGES: dict[str, Any] = {
    **{"layers": 8, "hidden": 512, "heads": 8, "ffn_hidden": 2048, "patches": 1024, "patch_dim": 588, "merge": 4},
    **{"projector": [[2048, 1024]], "images": 1.5, "most_images": 4},
}
ASKED: dict[str, Any] = {"global_batch": 16, "stack": "megatron-core", "precision": "bf16"}
PIPED: dict[str, Any] = ASKED | {"fix": {"pp": 2, "tp": 2, "recompute": "none"}}


def model(**changes: object) -> taut.ModelSpec:
    """The model with an encoder."""
    return taut.ModelSpec.parse(SHAPE | {"encoder": IMAGES | changes}, "m")


def planned(**changes: object) -> taut.Plan:
    """Its plan with two stages."""
    return taut.plan(model(**changes), "dgx-a100", **PIPED)


def test_words_of_a_plan() -> None:
    """How many images, of how many tokens, and what is trained."""
    found = " ".join(summary(planned(trained="projector").typed).split())
    assert "1.5 images of 256 tokens a sample (at most 4), encoder frozen but for its projector" in found


def test_an_encoder_takes_time_and_memory_of_the_first_stage() -> None:
    """Less is trained, less time; frozen needs less memory than trained; images a sample cost time, the most memory."""
    alone = taut.plan(taut.ModelSpec.parse(SHAPE, "m"), "dgx-a100", **PIPED)
    seconds = [planned(trained=kind).predicted.step_time_s for kind in ("none", "projector", "all")]
    assert alone.predicted.step_time_s < seconds[0] < seconds[1] < seconds[2]
    fixed = PIPED | {"fix": PIPED["fix"] | {"micro_batch": 1, "zero": 1, "vpp": 1}}
    first = [taut.plan(model(trained=kind), "dgx-a100", **fixed).predicted.memory_bytes[0] for kind in ("none", "all")]
    assert first[0] < first[1]
    assert planned(images=3.0).predicted.step_time_s > seconds[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stack": "torchtitan"}, "torchtitan has no encoder of images, expected megatron-core or any"),
        ({"optimizer": "muon"}, "not priced under Muon, expected --optimizer adam"),
        ({"precision": "fp8"}, "precision is fp8, expected bf16 or fp16 beside an encoder"),
        ({"latency_model": "simulated", "fix": {"tp": 2, "pp": 2}}, "tensor_parallel false"),
    ],
)
def test_what_is_not_priced_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((DataError, FormulationError), match=words):
        taut.plan(model(tensor_parallel=True), "dgx-h100", **(ASKED | options))


def test_exports(tmp_path: Path) -> None:
    """Megatron-Bridge freezes what the plan has frozen; frameworks without settings are refused."""
    plan = planned(trained="projector")
    taut.export(plan, "megatron-bridge", tmp_path)
    overrides = (tmp_path / "overrides.txt").read_text()
    assert "model.freeze_vision_model=true" in overrides and "model.freeze_vision_projection=false" in overrides
    with pytest.raises(ExportError, match="encoder of images, expected --to megatron-bridge"):
        taut.export(plan, "megatron", tmp_path / "other")
    with pytest.raises(ExportError, match=r"encoder\.recompute is true, expected false in Megatron-Bridge"):
        taut.export(planned(recompute=True), "megatron-bridge", tmp_path / "other")
    with pytest.raises(ExportError, match="take 8 inner projectors, expected as many layers"):
        taut.export(planned(projectors=9), "megatron-bridge", tmp_path / "other")
    taut.export(plan, ["megatron-bridge", "torch-csv"], tmp_path / "csv")
    assert {"schedule.csv", "overrides.txt"} <= {path.name for path in (tmp_path / "csv").iterdir()}
    document = copy.deepcopy(plan.document)
    document["inputs"]["memory_model"]["spec"]["optimizer"] = "muon"
    for framework in ("megatron", "megatron-bridge"):
        with pytest.raises(ExportError, match=r"encoder of images and optimizer muon.*told both"):
            launch_files(Job(taut.Plan(document)), [framework])


def test_packing_is_refused(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("100\n200\n")
    with pytest.raises(DataError, match="encoder of images"):
        taut.pack(planned(), str(lengths))
