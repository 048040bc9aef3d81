"""Encoders of images: sizes by hand, seconds that are linear in images, and what is refused."""

from typing import Any

import numpy as np
import pytest

from taut.data.analytic.device_rates import rates_of
from taut.data.analytic.layer_costs import encoder_kept, encoder_passes
from taut.data.catalog.devices import catalog_device
from taut.data.layers.encoder import EncoderSpec
from taut.errors import DataError

SMALL: dict[str, Any] = {
    **{"layers": 2, "hidden": 8, "heads": 2, "ffn_hidden": 16, "patches": 16, "patch_dim": 12, "merge": 4},
    **{"projector": [[32, 32], [32, 64]], "images": 1.5, "most_images": 2},
}


def small(**changes: object) -> EncoderSpec:
    """A small encoder."""
    return EncoderSpec.parse(SMALL | changes, "encoder")


def test_parameters_by_hand() -> None:
    """Two GPT layers, the embedding of patches, and two products; tensor ranks share matrices only if they are to."""
    # 12 h^2 with f = 2 h: 4 * 64 + 2 * 128 = 512; norms and biases 4 h + (h + f) + 2 h + 2 h = 88 a layer.
    body, chain = 2 * (512 + 88) + 12 * 8, 32 * 32 + 32 * 64
    assert small().parameters() == small().parameters(2) == body + chain
    # Of a layer two ranks halve 512, and of 88 the biases of queries, keys, values and function, 8 + 16 + 16.
    assert small(tensor_parallel=True).parameters(2) == 2 * (256 + 48 + 20) + 96 + chain // 2
    assert small(trained="projector").trained_parameters() == chain
    assert small(trained="none").trained_parameters() == 0


def test_bytes_by_hand() -> None:
    """Of two images of 16 patches: layers, patches and what the projectors keep, in bf16."""
    # 4 h + 4 h + 2 f = 96 numbers a patch and layer; 12 of the patch; 32 + 32 + 32 for every fourth patch.
    assert encoder_kept(small(), 1, 1, 2).whole == 2 * 32 * (2 * 96 + 12) + 2 * 8 * 96
    assert encoder_kept(small(recompute=True), 1, 1, 2).whole == 2 * 32 * (2 * 8 + 12) + 2 * 8 * 96
    assert encoder_kept(small(trained="projector"), 1, 1, 2).whole == 2 * 8 * 96
    assert encoder_kept(small(trained="none"), 1, 1, 2) == (0, 0, 0)
    split = encoder_kept(small(tensor_parallel=True), 2, 1, 2)
    assert split.split == 2 * 32 * 2 * 64 and split.split + split.whole == encoder_kept(small(), 1, 1, 2).whole
    # A frozen layer under way, and a recomputed one, has 96 numbers a patch.
    assert small(trained="none").working(1, 1, 2) == small(recompute=True).working(1, 1, 2) == 2 * 32 * 96
    assert small().working(1, 1, 2) == 0


def test_sums_of_tensor_ranks_by_hand() -> None:
    """Two outputs of each of two layers and one of a projector, of 1.5 images; recomputed layers sum once more."""
    tokens = 1.5 * 16
    shared = small(tensor_parallel=True)
    assert shared.summed(2) == ((tokens * (4 * 8 + 64 / 4), 5), (tokens * (4 * 8 + 32 / 4), 5))
    assert shared.summed(1) == small().summed(2) == ((0, 0), (0, 0))
    assert small(tensor_parallel=True, recompute=True).summed(2)[1] == (tokens * (8 * 8 + 32 / 4), 9)
    assert small(tensor_parallel=True, trained="projector").summed(2)[1] == (0, 0)


def test_seconds_follow_what_is_trained() -> None:
    """Frozen layers have no backward pass, windows less attention; recompute adds the layers' forward pass."""
    rates = rates_of(catalog_device("h100-80gb"), "bf16", None)
    sizes: dict[str, Any] = {
        "layers": 32,
        "hidden": 1280,
        "heads": 16,
        "ffn_hidden": 3456,
        "patches": 4096,
        "patch_dim": 1176,
    }
    sizes |= {"projector": [[5120, 5120], [5120, 8192]]}
    full, window = (small(**sizes, window=w) for w in (None, 64))
    whole = [float(terms.sum()) for terms in encoder_passes(full, 1, 1, rates)]
    assert encoder_passes(window, 1, 1, rates).forward[1] < encoder_passes(full, 1, 1, rates).forward[1]
    again = [float(terms.sum()) for terms in encoder_passes(small(**sizes, recompute=True), 1, 1, rates)]
    assert whole[0] == again[0] and whole[2] == again[2] and whole[1] < again[1] < whole[1] + whole[0]
    for trained in ("projector", "none"):
        frozen = [float(terms.sum()) for terms in encoder_passes(small(**sizes, trained=trained), 1, 1, rates)]
        assert frozen[0] == whole[0] and frozen[1] < 0.1 * whole[1] and frozen[2] < 0.1 * whole[2]
    assert frozen[1:] == [0, 0]
    two = encoder_passes(small(**sizes, images=1.0), 1, 2, rates)
    one = encoder_passes(small(**sizes, images=2.0), 1, 1, rates)
    np.testing.assert_allclose(two.forward, one.forward)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 3}, "hidden is 8, expected a multiple of heads"),
        ({"merge": 3}, "patches is 16, expected a multiple of merge"),
        ({"full_layers": 1}, "beside a window"),
        ({"images": 3.0}, "images is 3, expected at most most_images"),
        ({"recompute": True, "trained": "none"}, "expected false where the layers are frozen"),
        ({"projector": [[32, 16], [32, 64]]}, "takes 32 columns after one that gives 16"),
        ({"projector": [[32, 16, 8]]}, "projector"),
        ({"images": 0.0}, "images"),
    ],
)
def test_wrong_encoders_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        small(**changes)
