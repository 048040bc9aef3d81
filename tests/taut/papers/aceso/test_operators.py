"""Operator profiles of Aceso: units, what is shared, where a layer begins, and one line for what is wrong."""

from pathlib import Path

import numpy as np
import pytest

from taut.data.units import MIB
from taut.errors import DataError
from taut.papers.aceso.operators import read_operator_profile, read_operators

HEADER = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved"
LINES = """encoder-embedding,2000,3000,0.5,8,100,8,30,130
enc-1st-layernorm,100,200,8,16,0,8,0,70
enc-attention-softmax,300,400,16,20,0,64,0,60
enc-attention-dropout,500,600,20,16,0,64,128,270
enc-MLP-GEMM-1,700,800,16,8,12,10,0,60
final-layernorm,100,300,8,8,0,8,0,36
gpt-post-process,9000,7000,8,0,100,200,99,0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One profile, and rates."""
    (tmp_path / "gpt_1_3B_mbs2_tp4_algo0.csv").write_text(f"{HEADER}\n{LINES}", encoding="utf-8")
    (tmp_path / "p2p_intra_node.csv").write_text("1,2,4\n2.0,4.0,5.0\n", encoding="utf-8")
    (tmp_path / "p2p_inter_node.csv").write_text("1,2,4\n1.0,1.5,2.0\n", encoding="utf-8")
    return tmp_path


def test_figures_are_seconds_and_bytes(folder: Path) -> None:
    """Microseconds and MiB become seconds and bytes; 2 GB/s are 2000 MiB a second; a layer has four operators."""
    profile = read_operator_profile(folder, "1_3B")
    read = profile.operators[2, 4]
    assert (read.head, read.layer, read.tail) == (1, 4, 2)
    assert read.forward[4] == pytest.approx(700e-6) and read.backward[-1] == pytest.approx(7e-3)
    assert read.inputs[0] == MIB / 2 and read.outputs[0] == 8 * MIB and read.weights[4] == 12 * MIB
    assert read.reserved_forward[3] == 128 * MIB and read.reserved_backward[0] == 130 * MIB
    np.testing.assert_allclose(profile.within_node, np.array([2000, 4000, 5000]) * MIB)
    assert profile.between_nodes[0] == 1000 * MIB


def test_shared_buffers_count_as_aceso_counts_them(folder: Path) -> None:
    """The softmax of the scores counts nothing and their dropout 1.5 times its 64 MiB; what was measured stays."""
    read = read_operator_profile(folder, "1_3B").operators[2, 4]
    np.testing.assert_allclose(read.activations / MIB, [8, 8, 0, 96, 10, 8, 200])
    np.testing.assert_allclose(read.measured_activations / MIB, [8, 8, 64, 64, 10, 8, 200])
    assert read.shares.tolist() == [False, False, True, True, False, False, False]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("700,800", "700,fast", r"row 5: backward-compute: is 'fast'"),
        ("700,800", "-1,800", r"row 5: forward-compute: is '-1'"),
        ("weights,", "weight,", r"row 1: weights: missing"),
        ("enc-1st-layernorm", "norm", "has no layer, expected one operator, a layer from enc-1st-layernorm on"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(folder: Path, old: str, new: str, message: str) -> None:
    """File, row, column and value."""
    path = folder / "gpt_1_3B_mbs2_tp4_algo0.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_operators(path)


def test_a_folder_without_the_model_or_with_other_operators_is_refused(folder: Path) -> None:
    """The message names the file that is missing, or the one that differs."""
    with pytest.raises(DataError, match=r"no file gpt_13B_mbsB_tpT_algo0\.csv"):
        read_operator_profile(folder, "13B")
    other = LINES.replace("enc-MLP-GEMM-1", "enc-MLP-GEMM-2")
    (folder / "gpt_1_3B_mbs2_tp8_algo0.csv").write_text(f"{HEADER}\n{other}", encoding="utf-8")
    with pytest.raises(DataError, match=r"gpt_1_3B_mbs2_tp8_algo0\.csv has other operators"):
        read_operator_profile(folder, "1_3B")


@pytest.mark.parametrize("text", ["1,2\n", "1,2\n3,x\n", "1,2\n3,0\n", "1,2\n3\n"])
def test_wrong_rates_are_refused(folder: Path, text: str) -> None:
    """A line of rates above 0 is expected, one for each size."""
    (folder / "p2p_inter_node.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="a line of GB/s"):
        read_operator_profile(folder, "1_3B")
