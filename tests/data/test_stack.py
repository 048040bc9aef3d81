"""Stacks: what frameworks run, and which calibration speaks for them."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.calibration import Calibration
from taut.data.catalog.builtin import catalog_calibrations, catalog_memory_models, catalog_stacks
from taut.data.catalog.devices import catalog_device
from taut.data.costs import CostRow
from taut.data.device import DeviceSpec, Precision
from taut.data.load import load_model, load_stack
from taut.data.stack import SCHEDULES, borrowed, calibration_for, distance, fused
from taut.errors import DataError


def test_every_stack_names_what_exists() -> None:
    """Schedules, calibrations and memory models of the built-in stacks are known, and every rule has a source."""
    for stack in catalog_stacks().values():
        assert set(stack.schedules) <= set(SCHEDULES)
        assert set(stack.calibrations) <= set(catalog_calibrations())
        assert set(stack.memory_models) <= set(catalog_memory_models())
        assert set(stack.pipeline_zero or stack.zero) <= set(stack.zero)
        assert stack.source and all(rule.source for rule in stack.rules)


def test_calibration_of_the_device_precision_and_nodes_is_taken() -> None:
    """One node and many have their own on A100, bf16 and fp8 theirs on H100."""
    names = [*load_stack("megatron-deepspeed").calibrations, *load_stack("megatron-core").calibrations]
    known = [catalog_calibrations()[name] for name in names]
    asked: list[tuple[str, Precision, bool]] = [
        ("a100-80gb", "bf16", False),
        ("a100-80gb", "fp16", True),
        ("h100-80gb", "bf16", True),
        ("h100-80gb", "fp8", True),
    ]
    chosen = [
        calibration_for(known, [catalog_device(device)], precision, many_nodes=many)
        for device, precision, many in asked
    ]
    assert [one.name if one else "" for one in chosen] == [
        "megatron-deepspeed-a100-one",
        "megatron-deepspeed-a100-many",
        "nemo-h100-bf16",
        "nemo-h100-fp8",
    ]


def test_computation_on_each_of_several_types_is_priced_by_its_own_calibration() -> None:
    """H100 beside A100: links by H100's calibration, products of A100 by A100's, and a digest without it as before."""
    every = dict(catalog_calibrations())
    every["nemo-h100-bf16"] = every["nemo-h100-bf16"].model_copy(update={"launch_us": 300.0})
    known = [every[name] for name in load_stack("megatron-core").calibrations]
    h100, a100 = (every[name] for name in ("nemo-h100-bf16", "megatron-deepspeed-a100-many"))
    both = calibration_for(known, [catalog_device("a100-80gb"), catalog_device("h100-80gb")], "bf16", many_nodes=True)
    assert both is not None and both.name == h100.name and list(both.computation) == ["a100-80gb"]
    assert both.on("h100-80gb")["gemm"] == h100["gemm"] and both.on("a100-80gb")["gemm"] == a100["gemm"]
    assert both.on("a100-80gb")["tensor_parallel"] == h100["tensor_parallel"]
    assert both.on("a100-80gb").launch == a100.launch != h100.launch
    assert "computation" not in h100.model_dump() and Calibration.parse(both.model_dump(), "both") == both


def test_a_type_without_runs_computes_as_the_nearest_that_has_some() -> None:
    """A10G beside H100 loses what A100 loses, as it does alone; links are those of H100's calibration."""
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    h100, a10g = catalog_device("h100-80gb"), catalog_device("a10g-24gb")
    alone = calibration_for(known, [a10g], "bf16", many_nodes=True)
    both = calibration_for(known, [h100, a10g], "bf16", many_nodes=True)
    assert alone is not None and both is not None and both.name == "nemo-h100-bf16"
    assert list(both.computation) == ["a10g-24gb"]
    assert both.on("a10g-24gb")["gemm"] == alone["gemm"] != both["gemm"]
    assert both.on("a10g-24gb")["tensor_parallel"] == both["tensor_parallel"]


def test_costs_of_two_types_are_those_of_each_alone() -> None:
    """The rows of A100 and of H100 in a table of both are the rows of a table of one, each under its calibration."""
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    devices = [catalog_device(name) for name in ("a100-80gb", "h100-80gb")]

    def rows(types: list[DeviceSpec]) -> list[CostRow]:
        taken = calibration_for(known, types, "bf16", many_nodes=True)
        model = load_model("llama3-8b")
        return list(
            analytic_costs(
                model, types, precision="bf16", tensor_degrees=[1, 2], micro_batches=[1], calibration=taken
            ).rows
        )

    def seconds(found: list[CostRow]) -> list[tuple[float, float]]:
        return [(row.forward_s, row.input_grad_s + row.weight_grad_s) for row in found]

    assert seconds(rows(devices)) == seconds(rows(devices[:1]) + rows(devices[1:]))


def test_losses_of_another_device_are_taken_over_with_a_wider_band() -> None:
    """A device without runs gets the coefficients, errors with the spread of devices, and a source that says so."""
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    taken = calibration_for(known, [catalog_device("h200-141gb")], "bf16", many_nodes=True)
    assert taken is not None and taken.device == ""
    own = catalog_calibrations()["nemo-h100-bf16"].residuals
    # A deviation of 11 % has 14.1 % at its 0.9 quantile, and adds its square to the square of the fit's own.
    assert math.log1p(taken.residuals["0.9"]) == pytest.approx(math.hypot(math.log1p(own["0.9"]), 0.141), rel=1e-3)
    assert taken.residuals["0.1"] < own["0.1"] and taken.residuals["0.5"] == own["0.5"]
    assert taken.coefficients == catalog_calibrations()["nemo-h100-bf16"].coefficients
    assert taken.source.startswith("losses of h100-80gb")


def test_what_training_adds_to_inference_is_not_priced_twice() -> None:
    """On B200 kernels of training were measured, so 1.2 of H100 is 1.2 / 1.08 there, at least 1; not in fp8."""
    b200, given = catalog_device("b200-180gb"), catalog_calibrations()["nemo-h100-bf16"]
    given = given.model_copy(update={"coefficients": {**given.coefficients, "gemm": 1.2, "attention": 0.9}})
    taken = borrowed(given, [b200], "bf16")
    assert taken["gemm"] == pytest.approx(1.2 / 1.08) and taken["attention"] == 1.0
    assert taken.coefficients == {**given.coefficients, "gemm": taken["gemm"], "attention": 1.0}
    assert borrowed(given, [b200], "fp8")["gemm"] == 1.2
    own = borrowed(given, [catalog_device("h100-80gb")], "mxfp8").source
    assert own.startswith("losses of bf16, as none are known of mxfp8; ")
    for devices in ([], [catalog_device("h200-141gb")], [b200, catalog_device("h200-141gb")]):
        assert borrowed(given, devices, "bf16").coefficients == given.coefficients


def test_devices_without_measured_operators_keep_their_efficiencies() -> None:
    """A factor beside B200's operators is none of MI325X's products and attention, alone or in a mixed cluster."""
    b200, amd = catalog_device("b200-180gb"), catalog_device("mi325x-256gb")
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    alone, both = (calibration_for(known, types, "fp8", many_nodes=True) for types in ([amd], [b200, amd]))
    assert alone is not None and both is not None
    given = catalog_calibrations()["megatron-bridge-fp8-b200"]
    assert alone.coefficients == given.coefficients | {"gemm": 1.0, "attention": 1.0}
    assert "stated efficiencies" in alone.source
    assert both.coefficients == given.coefficients
    assert both.on(amd.name)["attention"] == 1.0 and both.on(b200.name)["attention"] == given["attention"]


def test_calibrations_of_a_device_come_before_its_likes() -> None:
    """GB200 and GB300 state the same rates in half precision, and each has coefficients of its own."""
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    for device in ("gb200-186gb", "gb300-279gb"):
        taken = calibration_for(known, [catalog_device(device)], "fp8", many_nodes=True)
        assert taken is not None and taken.device == device and taken.has_band


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("a100-40gb", "megatron-deepspeed-a100-many"),
        ("v100-32gb", "megatron-deepspeed-a100-many"),
        ("h200-141gb", "nemo-h100-bf16"),
        ("gh200-96gb", "nemo-h100-bf16"),
    ],
)
def test_losses_are_those_of_the_nearest_device(device: str, name: str) -> None:
    """A100 with less memory computes as A100, not as H100; what is faster than both takes H100's losses."""
    known = [catalog_calibrations()[one] for one in load_stack("megatron-core").calibrations]
    taken = calibration_for(known, [catalog_device(device)], "bf16", many_nodes=True)
    assert taken is not None and taken.device == "" and taken.name == name


def test_distance_of_two_devices_is_that_of_their_rates() -> None:
    """By (1) ln(989 / 312) = 1.154 and ln(3350 / 2039) = 0.496, so 1.256; strangers are infinitely so."""
    types = {"a100-80gb": catalog_device("a100-80gb")}
    assert distance("h100-80gb", types) == pytest.approx(1.256, abs=2e-3)
    assert distance("a100-80gb", types) == 0.0
    assert distance("ours", types) == math.inf


def test_attention_in_one_kernel_is_priced_by_runs_that_had_it() -> None:
    """On A100 attention has H100's coefficient, all other terms the runs' own; nothing changes where kinds agree."""
    names = ("megatron-deepspeed-a100-many", "nemo-h100-bf16")
    several, one = (catalog_calibrations()[name] for name in names)
    taken = fused(several, [several, one])
    assert not several.fused_attention and taken.fused_attention
    assert taken.coefficients == {**several.coefficients, "attention": one["attention"]}
    assert taken.source.endswith("attention in one kernel at the losses of nemo-h100-bf16")
    assert fused(several, [several])["attention"] == 1.0
    assert fused(one, [several, one]) is one


def test_losses_in_fp8_stand_for_recipes_that_nothing_is_known_of() -> None:
    """By blocks the losses are those of fp8 with a wider band, even on its own device; half precision stays apart."""
    known = [catalog_calibrations()[name] for name in load_stack("megatron-core").calibrations]
    asked: list[tuple[str, Precision, str]] = [
        ("b200-180gb", "fp8-blockwise", "megatron-bridge-fp8-b200"),
        ("h100-80gb", "fp8-blockwise", "nemo-h100-fp8"),
    ]
    for device, precision, name in asked:
        taken = calibration_for(known, [catalog_device(device)], precision, many_nodes=True)
        given = catalog_calibrations()[name]
        assert taken is not None and taken.device == "" and taken.coefficients == given.coefficients
        assert taken.residuals["0.1"] < given.residuals["0.1"] < 0 < given.residuals["0.9"] < taken.residuals["0.9"]
    assert calibration_for(known[-1:], [catalog_device("h100-80gb")], "fp32", many_nodes=True) is None


def test_a_stack_that_nothing_is_known_of_has_no_calibration() -> None:
    """The whole space is priced at stated efficiencies."""
    assert calibration_for([], [catalog_device("h100-80gb")], "bf16", many_nodes=True) is None


def test_a_stack_is_read_from_a_file(tmp_path: Path) -> None:
    """A file states a stack by the catalog's fields; its name is that of the file."""
    file = tmp_path / "ours.yaml"
    file.write_text("{description: ours, schedules: [1f1b], zero: [0, 1]}\n", encoding="utf-8")
    assert load_stack(file).name == "ours"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("megatron", "stack 'megatron' is not in the catalog, expected a catalog name, or a .yaml file; did you mean"),
        ("nowhere.yaml", "expected a stack file"),
    ],
)
def test_a_stack_that_is_not_there_is_refused(name: str, words: str) -> None:
    """The message names what was expected."""
    with pytest.raises(DataError, match=words):
        load_stack(name)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"schedules": ["1f1b", "1f1c"]}, r"ours.yaml: schedules.1: is '1f1c', expected to be '1f1b'"),
        ({"zero": [0, 7]}, r"ours.yaml: zero.1: is 7, expected to be 0, 1, 2 or 3"),
        ({"zero": [0], "pipeline_zero": [1]}, "ours.yaml: pipeline_zero: is 1, expected one of zero: 0"),
        ({"pipeline_zero": []}, "ours.yaml: pipeline_zero: is"),
        ({"recompute": ["half"]}, "ours.yaml: recompute.0: is 'half', expected"),
        ({"calibration": []}, "ours.yaml: calibration: unknown field, did you mean calibrations?"),
    ],
)
def test_wrong_values_of_a_stack_are_refused_by_field(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    """One line: the file, the field, its value, what was expected."""
    file = tmp_path / "ours.yaml"
    file.write_text(yaml.safe_dump({"description": "ours", "schedules": ["1f1b"], "zero": [0, 1], **values}))
    with pytest.raises(DataError, match=words) as refusal:
        load_stack(file)
    assert "\n" not in str(refusal.value)
