r"""
The encoder of images that a multimodal ``config.json`` describes beside its language model.

``taut.data.readers.huggingface`` reads the language model alone. This reader adds the encoder of
``taut.data.layers.encoder`` to it, for these values of ``model_type``:

==========================  =====================================================  ==============================
type                        patches of an image                                    tensor ranks of Megatron-Bridge
==========================  =====================================================  ==============================
qwen2_5_vl                  of the image's own size, all but some layers windowed  each has the encoder whole
qwen3_vl, qwen3_vl_moe      of the image's own size; mergers of inner layers too   share the encoder
internvl, internvl_chat     of tiles of one size                                   each has it whole
gemma3                      of one size, mean of 16 is a token                     each has it whole
llama4                      of tiles of one size                                   each has it whole
==========================  =====================================================  ==============================

An image is a tile where sizes are fixed. A class token (InternVL, Llama 4) is left out, as are biases of gated layers:
both are below 0.2 % of the encoder. Files of other types are refused by name.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.huggingface import read_config
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.errors import DataError

PIXELS = 3
"""Channels of a pixel where the file states none."""


def read_multimodal(
    path: Path, images: str, *, most: int | None = None, size: str | None = None, seq: int | None = None, **facts: Any
) -> ModelSpec:
    """Language model and encoder of a ``config.json``; ``images``: a sample's mean, or shares as ``1:0.5,4:0.5``."""
    values = read_json(path, "a Hugging Face config.json", ("time_step_limit",))
    kind, vision = str(values.get("model_type")), values.get("vision_config")
    if kind not in FAMILIES:
        raise DataError(f"{path}: model_type is {shorten(kind)}, expected {one_of(kind, FAMILIES)}")
    if not isinstance(vision, dict):
        raise DataError(f"{path}: vision_config: missing, expected the description of an encoder")
    model = read_config(path, seq=seq, alone=False)
    read = _Fields(vision, values, f"{path}: vision_config", model.blocks[0].hidden)
    found = FAMILIES[kind](read, None if size is None else _pixels(size))
    if size is not None and kind not in ANY_SIZE:
        raise DataError(f"--image-size {size}: {kind} has tiles of one size, expected none; count tiles as images")
    mean, largest = _images(images)
    found |= {"images": mean, "most_images": largest if most is None else most}
    found |= {name: value for name, value in facts.items() if value is not None}
    return ModelSpec.parse({**model.model_dump(exclude_none=True), "encoder": found}, str(path))


def _pixels(size: str) -> tuple[int, int]:
    if not (found := re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", size)):
        raise DataError(f"--image-size {shorten(size)}: expected height and width in pixels, such as 1008x1008")
    return int(found[1]), int(found[2])


def _images(text: str) -> tuple[float, int]:
    """Mean and most images of a sample."""
    expected = "expected a number such as 1.5, or shares by number such as 1:0.5,4:0.5"
    try:
        pairs = [(int(count), float(share)) for count, share in (each.split(":") for each in text.split(","))]
    except ValueError:
        pairs = []
    try:
        mean = float(text) if not pairs else sum(n * share for n, share in pairs) / sum(share for _, share in pairs)
    except (ValueError, ZeroDivisionError):
        mean = math.nan
    if not 0 < mean < math.inf or any(n < 0 or not 0 <= share < math.inf for n, share in pairs):
        raise DataError(f"--images {shorten(text)}: {expected}")
    return mean, max((n for n, share in pairs if share), default=math.ceil(mean))


class _Fields:
    """Fields of a ``vision_config``, and of the file around it."""

    def __init__(self, vision: Mapping[str, Any], outer: Mapping[str, Any], where: str, hidden: int) -> None:
        self.vision, self.outer, self.where, self.hidden = vision, outer, where, hidden

    def __call__(self, *names: str, default: int | None = None) -> int:
        """The whole number under the first of some names that is there; of a pair of equal numbers the first."""
        name = next((name for name in names if self.vision.get(name) is not None), names[0])
        value = self.vision.get(name, default)
        if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            shown = "missing" if value is None else f"is {shorten(value)}"
            raise DataError(f"{self.where}: {name} {shown}, expected a whole number of at least 1")
        return value

    def merged(self, name: str, owner: Mapping[str, Any]) -> int:
        """Patches that become a token under a ratio of lengths, such as 0.5."""
        ratio = owner.get(name, 0.5)
        if not isinstance(ratio, int | float) or not 0 < ratio <= 1 or not (1 / ratio).is_integer():
            raise DataError(f"{self.where}: {name} is {shorten(ratio)}, expected one over a whole number")
        return round(1 / ratio) ** 2

    @property
    def layers(self) -> dict[str, Any]:
        """Sizes of the layers and of a patch, without what a family has of its own."""
        found = {"layers": self("depth", "num_hidden_layers"), "hidden": self("hidden_size")}
        found |= {"heads": self("num_heads", "num_attention_heads"), "ffn_hidden": self("intermediate_size")}
        frames = self("temporal_patch_size", default=1)
        channels = self("in_channels", "in_chans", "num_channels", default=PIXELS)
        return found | {"patch_dim": channels * frames * self("patch_size") ** 2}

    def tiles(self, merge: int) -> dict[str, int]:
        """Patches of an image of the file's size, each with a learned position."""
        side = self("image_size") // self("patch_size")
        return {"patches": side * side, "position_rows": side * side, "merge": merge}

    def any_size(self, pixels: tuple[int, int] | None) -> dict[str, int]:
        """Patches of an image of so many pixels, its sides rounded to whole tokens as the processor does."""
        if pixels is None:
            raise DataError(f"{self.where}: takes images of any size, expected --image-size such as 1008x1008")
        merge = self("spatial_merge_size", default=2)
        side = self("patch_size") * merge
        rows, columns = (max(round(length / side), 1) * merge for length in pixels)
        return {"patches": rows * columns, "merge": merge * merge}


def _qwen(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    found = {**read.layers, **read.any_size(pixels)}
    wide = found["hidden"] * found["merge"]
    return found | {"projector": [[wide, wide], [wide, read("out_hidden_size")]]}


def _qwen25(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    window, full = read("window_size") // read("patch_size"), read.vision.get("fullatt_block_indexes")
    if not isinstance(full, list):
        raise DataError(f"{read.where}: fullatt_block_indexes is {shorten(full)}, expected a list of layers")
    return _qwen(read, pixels) | {"gated_mlp": True, "window": window * window, "full_layers": len(full)}


def _qwen3(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    inner = read.vision.get("deepstack_visual_indexes")
    if not isinstance(inner, list):
        raise DataError(f"{read.where}: deepstack_visual_indexes is {shorten(inner)}, expected a list of layers")
    own = {"position_rows": read("num_position_embeddings"), "projectors": 1 + len(inner), "tensor_parallel": True}
    return _qwen(read, pixels) | own


def _internvl(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    found = {**read.layers, **read.tiles(read.merged("downsample_ratio", read.outer))}
    return found | {"projector": [[found["hidden"] * found["merge"], read.hidden], [read.hidden, read.hidden]]}


def _gemma3(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    tokens = read.outer.get("mm_tokens_per_image", 256)
    found = {**read.layers, **read.tiles(1)}
    if not isinstance(tokens, int) or tokens < 1 or found["patches"] % tokens:
        raise DataError(f"{read.where}: mm_tokens_per_image is {shorten(tokens)}, expected to divide the patches")
    return found | {"merge": found["patches"] // tokens, "projector": [[found["hidden"], read.hidden]]}


def _llama4(read: _Fields, pixels: tuple[int, int] | None) -> dict[str, Any]:
    found = {**read.layers, **read.tiles(read.merged("pixel_shuffle_ratio", read.vision))}
    inner, outer = read("projector_input_dim"), read("projector_output_dim")
    chain = [[found["hidden"] * found["merge"], inner], [inner, outer], [read("vision_output_dim"), read.hidden]]
    return found | {"projector": chain}


FAMILIES: Mapping[str, Callable[[_Fields, tuple[int, int] | None], dict[str, Any]]] = {
    "qwen2_5_vl": _qwen25,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "internvl": _internvl,
    "internvl_chat": _internvl,
    "gemma3": _gemma3,
    "llama4": _llama4,
}
"""Sizes of an encoder by type of the file."""
ANY_SIZE = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""Types whose encoders take images of any size."""
