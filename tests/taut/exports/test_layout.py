"""Layouts of Megatron-LM: ours, the vendor's, and wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import DataError
from taut.exports.layout import layers_of, layout_of


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any))
def test_a_layout_is_read_back(layers: list[int]) -> None:
    """Any numbers of layers, chunks without one included."""
    assert layers_of(layout_of(tuple(layers))) == tuple(layers)


@pytest.mark.parametrize(
    ("layout", "layers"),
    [
        ("Et*4|(t*4|)*14tmL", (4,) * 15 + (1,)),
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", (2,) * 35 + (3, 2, 2, 2, 1)),
        ("Ett|tt|tL", (2, 2, 1)),
        ("E|(t|)*3L", (0, 1, 1, 1, 0)),
    ],
)
def test_layouts_of_published_recipes(layout: str, layers: tuple[int, ...]) -> None:
    """DeepSeek-V3's in MLPerf, Llama-3 70B's in Megatron-Bridge, and short ones by hand."""
    assert layers_of(layout) == layers


@pytest.mark.parametrize("layout", ["", "E", "Et*3", "tE|L", "Et|x|tL", "(" * 9 + "t" + ")*9" * 9, "Et*99999999L"])
def test_wrong_layouts_are_refused(layout: str) -> None:
    """Letters out of place, unknown ones, groups in groups, and counts that no model has; an open end is none."""
    if layout == "Et*3":
        assert layers_of(layout) == (3,)
        return
    with pytest.raises(DataError, match="layout"):
        layers_of(layout)
