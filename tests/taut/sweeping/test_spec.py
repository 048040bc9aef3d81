"""What a sweep is asked for: lists expand, wrong names are refused, and a point is named by its content."""

from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.builtin import catalog_model
from taut.data.samples import ConfigurationRow
from taut.errors import DataError
from taut.prediction.experts import row_model
from taut.sweeping.point import expanded, points_of, read_spec


def fields(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Fields of every point of a sweep."""
    return [each for _, each in expanded(*read_spec(values))]


def test_lists_expand_to_their_product_the_last_first() -> None:
    """Two models and two batches are four points; a list in ``fix`` is one of values, too."""
    found = fields({"model": ["a", "b"], "global_batch": [1, 2], "fix": {"tp": [1, 2], "pp": 4}})
    assert len(found) == 8
    assert found[0] == {"model": "a", "global_batch": 1, "fix": {"tp": 1, "pp": 4}}
    assert found[1] == {"model": "a", "global_batch": 1, "fix": {"tp": 2, "pp": 4}}
    assert [each["model"] for each in found] == ["a"] * 4 + ["b"] * 4


def test_blocks_take_common_fields_and_say_otherwise() -> None:
    """A block's fields stand before the common ones, ``fix`` is merged, and null takes a field back."""
    common = {"model": "a", "seq": 512, "fix": {"tp": 2}}
    found = fields({**common, "points": [{"fix": {"pp": 4}}, {"seq": None, "model": "b"}]})
    assert found == [
        {"model": "a", "seq": 512, "fix": {"tp": 2, "pp": 4}},
        {"model": "b", "fix": {"tp": 2}},
    ]


def test_several_mappings_of_fixed_values_are_explicit_points() -> None:
    """A list in the place of ``fix`` holds whole choices."""
    found = fields({"model": "a", "fix": [{"tp": 8, "pp": 1}, {"tp": 1, "pp": [8, 16]}]})
    assert [each["fix"] for each in found] == [{"tp": 8, "pp": 1}, {"tp": 1, "pp": 8}, {"tp": 1, "pp": 16}]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"global_bacth": 8},
            "'global_bacth': unknown field of a plan, expected a known one; did you mean global_b",
        ),
        ({"kind": "plans"}, "kind: is 'plans', expected one of plan, predict, simulate; did you mean plan?"),
        ({"model": []}, "model: is an empty list, expected at least one value"),
        ({"points": []}, "points: is an empty list, expected at least one point"),
        ({"points": [{}, {"tpp": 1}]}, "points.1: 'tpp': unknown field"),
        ({"points": 3}, "points: is 3"),
        ({"global_batch": list(range(1001)), "seq": list(range(1001))}, "more than 1000000 points"),
    ],
)
def test_a_wrong_sweep_is_one_line(values: dict[str, Any], words: str) -> None:
    """What is wrong, where, and what was expected."""
    with pytest.raises(DataError) as refusal:
        fields(values)
    assert words in str(refusal.value)


def key(values: dict[str, Any]) -> str:
    """Name of the only point of a sweep."""
    return points_of(expanded(*read_spec(values)))[0].key


def test_a_point_is_named_by_its_content(tmp_path: Path) -> None:
    """The order of fields does not matter, a value does, and so does what a file holds, whatever its name."""
    model = "layers: 4\nhidden: 256\nheads: 4\nseq: 128\nname: own\n"
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(model, encoding="utf-8")
    other.write_text(model, encoding="utf-8")
    assert key({"model": "a", "seq": 1}) == key({"seq": 1, "model": "a"}) != key({"model": "a", "seq": 2})
    before = key({"model": str(one)})
    assert before == key({"model": str(other)})
    one.write_text(model.replace("4\nh", "8\nh"), encoding="utf-8")
    assert before != key({"model": str(one)})


@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-2.7b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3"])
def test_predictions_price_the_model_of_their_name(name: str) -> None:
    """The row of a model has its layers: gates, experts, and what the catalog knows of models with its experts."""
    values = {"kind": "predict", "model": name, "cluster": "dgx-h100:8", "global_batch": 64, "fix": {"tp": 4}}
    fields = points_of(expanded(*read_spec(values)))[0].fields
    read, model = row_model(ConfigurationRow.parse(fields, name)), catalog_model(name)
    assert read.parameters() == model.parameters()
    assert [block.experts for block in read.blocks] == [block.experts for block in model.blocks]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen3-32b", "no column states head_dim of its layers"),
        ("qwen3-8b", "no column states qk_norm of its layers"),
        (
            {"name": "m", "layers": 2, "hidden": 64, "heads": 2, "seq": 64, "vocab": 64, "position_rows": 64},
            "embeddings",
        ),
    ],
)
def test_predictions_refuse_a_model_that_columns_do_not_state(name: Any, words: str) -> None:
    """What a row would leave out is named."""
    values = {"kind": "predict", "model": name, "cluster": "dgx-h100:8", "global_batch": 64}
    assert words in points_of(expanded(*read_spec(values)))[0].error


def test_a_model_and_a_cluster_fill_the_columns_of_a_prediction() -> None:
    """Shape and devices come from the catalog, degrees from ``fix``, and replicas use what is left."""
    values = {"kind": "predict", "model": "gpt3-175b", "cluster": "dgx-a100:16", "global_batch": 512}
    found = points_of(expanded(*read_spec({**values, "fix": {"tp": 8, "pp": 4}})))[0].fields
    assert (found["layers"], found["hidden"], found["n_gpus"], found["gpu"]) == (96, 12288, 128, "a100-80gb")
    assert (found["tp"], found["pp"], found["dp"], found["cluster"]) == (8, 4, 4, "dgx-a100")
