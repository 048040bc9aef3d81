"""Stages that have the embedding or the head alone, in DeepSpeed's and FlagScale's words."""

from typing import Any

import pytest

from taut.exports.deepspeed import deepspeed_files
from taut.exports.flagscale import flagscale_config
from tests.support.launches import divided, launched

FIX: dict[str, Any] = {"pp": 4, "tp": 1, "micro_batch": 1, "schedule": "1f1b", "recompute": "none", "zero": 1}
LAYERS = (0, 6, 7, 0)


class Listed:
    """An entry of DeepSpeed's list of layers."""

    def __init__(self, name: str) -> None:
        self.typename = type(name, (), {})


def listed(*names: str) -> list[str]:
    """Names of a list's entries behind DeepSpeed's marks."""
    files = deepspeed_files(divided(launched(stack="deepspeed", **FIX), LAYERS))
    made: dict[str, Any] = {}
    exec(files["taut_stages.py"], made)
    marked: Any = made["marked"]
    return [layer.typename.__name__ for layer in marked(list(map(Listed, names)), names.index("Layer"))]


def test_deepspeed_begins_stages_at_embedding_and_head() -> None:
    """Marks at the embedding, at layers 0 and 6, and behind the last layer."""
    found = listed("Embedding", *["Layer"] * 13, "Norm", "Head")
    assert [place for place, name in enumerate(found) if name.startswith("TautStage")] == [0, 1, 7, 14]
    assert found[14] == "TautStageNorm"


@pytest.mark.parametrize("names", [(*["Layer"] * 13, "Head"), ("Embedding", *["Layer"] * 13)])
def test_lists_without_embedding_or_head_are_refused(names: tuple[str, ...]) -> None:
    """A stage needs some entry of the list."""
    with pytest.raises(ValueError, match="expected an embedding before them and a head behind"):
        listed(*names)


def test_flagscale_has_a_layout_or_no_layers_in_a_mesh() -> None:
    """Megatron-LM's layout on devices of one type; on two types numbers of layers, of which the first is none."""
    alike = flagscale_config(divided(launched(**FIX), LAYERS))
    assert alike["system"]["pipeline_model_parallel_layout"] == "E|t*6|t*7|L"
    mixed = launched(types=2, pp=2, tp=2, micro_batch=1, schedule="1f1b", recompute="none")
    system = flagscale_config(divided(mixed, (0, 13)))["system"]
    assert system["hetero"]["hetero_pipeline_layer_split"] == [0, 13]
    assert "pipeline_model_parallel_layout" not in system
