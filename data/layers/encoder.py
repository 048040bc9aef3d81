r"""
An encoder of images before the language model: its parameters, bytes and FLOP.

An encoder has E layers of hidden size h, a gated or plain feed-forward part of width f, and u = 2 or 1 matrices into
it. An image has P patches of q numbers each. g patches become one token of the language model. A sample has
:math:`\bar n` images on average and :math:`\hat n` at most. Each of c projectors is a chain of products of
:math:`K_i` columns in and :math:`N_i` out, which runs once for every g patches. b samples are a micro-batch, e the
bytes of a number, t the tensor ranks that share the encoder (1 where every rank has it whole). A row ``encoder`` of a
cost table has all work of a micro-batch's images; its sequence is one image.

The encoder and the token embedding are one part of the model: no stage boundary lies between them. The first stage
holds both, and may hold nothing else (``taut.formulations.mechanisms.empty_ends``). Context ranks have the encoder
whole, and encode all images (Megatron-LM, ``examples/multimodal``).

(1) Seconds are those of :math:`b \bar n` images, bytes those of :math:`b \hat n`. The price of a step is made of sums
    and maxima, so it is convex in the seconds of the encoder. As far as these are proportional to images, the mean
    price of steps of more and of fewer images is by Jensen's inequality at least the price at :math:`\bar n`, and at
    least every lower bound of it.
(2) Every patch of an image attends to all of its patches, without a causal mask. With windows of w patches it attends
    to those of its window, except in :math:`E_f` layers. The FLOP of a layer's core are :math:`4 P w h` an image.
(3) Parameters on a rank: E times those of a layer (``taut.data.layers.layer``), :math:`q h` that embed patches, h for
    each row of positions, and of projectors :math:`c \sum_i K_i N_i`, the first and the last product shared by ranks.
(4) With t > 1 a layer sums its outputs twice, :math:`e b \bar n P h` bytes each, forward, backward, and again if it is
    recomputed. A projector sums :math:`e b \bar n P N / g` bytes of its last product forward, and the K of its first
    backward. A frozen layer, and a projector behind frozen layers, sum nothing backward.
(5) A trained layer keeps :math:`e (4 h + (4 h + (u + 1) f) / t)` bytes a patch, as its heads are h wide together; a
    recomputed one :math:`e h`, and in its turn the former once more. A frozen layer keeps nothing, and has
    the former for a moment. A trained encoder keeps q numbers a patch. Trained projectors keep their inputs and what
    their functions take, :math:`e c (P / g) (\sum_i K_i + \sum_{i < k} N_i)` an image.
(6) A frozen part has weights, but neither gradients nor optimizer states. ZeRO leaves these weights whole. ZeRO-3
    gathers what is trained at once with the token embedding.
"""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from taut.data.layers.layer import LayerSpec
from taut.data.spec import Count, LayerCount, Positive, Spec

Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]


class EncoderSpec(Spec):
    """
    Sizes of an encoder under the names of the module's head, images of a sample, and what of it is trained.

    ``layers`` E, ``patches`` P, ``patch_dim`` q, ``position_rows`` learned positions, ``window`` w and ``full_layers``
    :math:`E_f`, ``merge`` g, ``projector`` the pairs :math:`(K_i, N_i)`, ``projectors`` c. ``images`` and
    ``most_images`` are the mean and the most of a sample. ``trained`` may be the projectors alone, or nothing.
    """

    layers: LayerCount
    hidden: Count
    heads: Count
    ffn_hidden: Count
    gated_mlp: bool = False
    patches: Count
    patch_dim: Count
    position_rows: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] = 0
    window: Count | None = None
    full_layers: Annotated[int, Field(ge=0, strict=True)] = 0
    merge: Count = 1
    projector: Annotated[list[Pair], Field(min_length=1)]
    projectors: Count = 1
    images: Positive
    most_images: Count
    trained: Literal["all", "projector", "none"] = "all"
    tensor_parallel: bool = False
    recompute: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "EncoderSpec":
        if self.hidden % self.heads:
            raise ValueError(f"hidden is {self.hidden}, expected a multiple of heads ({self.heads})")
        if self.patches % self.merge:
            raise ValueError(f"patches is {self.patches}, expected a multiple of merge ({self.merge})")
        for (_, columns), (rows, _) in pairwise(self.projector):
            if rows != columns:
                raise ValueError(
                    f"projector: a product takes {rows} columns after one that gives {columns}, expected as many"
                )
        if self.full_layers > self.layers or (self.full_layers and self.window is None):
            raise ValueError(f"full_layers is {self.full_layers}, expected at most the layers, beside a window")
        if self.images > self.most_images:
            raise ValueError(f"images is {self.images:g}, expected at most most_images ({self.most_images})")
        if self.recompute and self.trained != "all":
            raise ValueError("recompute is true, expected false where the layers are frozen")
        return self

    @property
    def layer(self) -> LayerSpec:
        """A layer, whose sequence is an image."""
        sizes = {"hidden": self.hidden, "heads": self.heads, "ffn_hidden": self.ffn_hidden, "seq": self.patches}
        return LayerSpec(kind="image", gated_mlp=self.gated_mlp, dropout=False, **sizes)

    @property
    def image_tokens(self) -> int:
        """Tokens of the language model that an image becomes."""
        return self.patches // self.merge

    def ranks(self, tp: int) -> int:
        """Tensor ranks t that share the encoder."""
        return tp if self.tensor_parallel else 1

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` tensor ranks can share the encoder, or need not."""
        t = self.ranks(tp)
        widths = (self.heads, self.ffn_hidden, self.projector[0][1], self.projector[-1][0])
        return all(width % t == 0 for width in widths)

    def _projector_parameters(self, tp: int) -> int:
        every = [rows * columns for rows, columns in self.projector]
        shared = every[0] + (every[-1] if len(every) > 1 else 0)
        return self.projectors * (sum(every) - shared + shared // self.ranks(tp))

    def _layer_parameters(self, tp: int) -> int:
        own = self.layers * self.layer.parameters(self.ranks(tp))
        return own + (self.patch_dim + self.position_rows) * self.hidden

    def parameters(self, tp: int = 1) -> int:
        """Parameters on one of ``tp`` tensor ranks, (3)."""
        return self._layer_parameters(tp) + self._projector_parameters(tp)

    def trained_parameters(self, tp: int = 1) -> int:
        """Parameters on one of ``tp`` tensor ranks that have gradients and states, (6)."""
        if self.trained == "none":
            return 0
        return self._projector_parameters(tp) + (self._layer_parameters(tp) if self.trained == "all" else 0)

    def summed(self, tp: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Numbers that tensor ranks sum of a sample, and how often, forward and backward, (4)."""
        if self.ranks(tp) == 1:
            return (0.0, 0.0), (0.0, 0.0)
        tokens, layers, chains = self.images * self.patches, 2 * self.layers, self.projectors
        forward = tokens * (layers * self.hidden + chains * self.projector[-1][1] / self.merge), layers + chains
        if self.trained != "all":
            return forward, (0.0, 0.0)
        again = layers * (1 + self.recompute)
        back = tokens * (again * self.hidden + chains * self.projector[0][0] / self.merge)
        return forward, (back, again + chains)

    def kept(self, samples: int, element: int, *, recompute: bool) -> tuple[int, int]:
        """Bytes of a layer that every rank keeps, and bytes that the ranks share, (5), of a micro-batch."""
        patches = element * samples * self.most_images * self.patches
        if recompute:
            return patches * self.hidden, 0
        return 4 * patches * self.hidden, patches * (4 * self.hidden + (3 if self.gated_mlp else 2) * self.ffn_hidden)

    def kept_at_edges(self, samples: int, element: int) -> int:
        """Bytes of a micro-batch's patches and of what projectors keep, (5)."""
        patches, found = samples * self.most_images * self.patches, 0
        if self.trained == "all":
            found += patches * self.patch_dim
        if self.trained != "none":
            columns = [size for pair in self.projector for size in pair][:-1]
            found += self.projectors * (patches // self.merge) * sum(columns)
        return element * found

    def working(self, tp: int, samples: int, element: int) -> int:
        """Bytes of a layer that is recomputed or frozen, while it runs, on one tensor rank, (5)."""
        if self.trained == "all" and not self.recompute:
            return 0
        whole, shared = self.kept(samples, element, recompute=False)
        return whole - (-shared // self.ranks(tp))

    def forward_flops(self) -> tuple[float, float]:
        """FLOP of the layers and of the projectors for a sample, forward, (2)."""
        reach = min(self.window or self.patches, self.patches)
        cores = self.full_layers * self.patches + (self.layers - self.full_layers) * reach
        matrices = self.layers * self.layer.matrix_parameters() + self.patch_dim * self.hidden
        patches, projectors = self.images * self.patches, self._projector_parameters(1)
        return patches * (2.0 * matrices + 4.0 * cores * self.hidden), 2.0 * patches / self.merge * projectors

    def training_flops(self) -> float:
        """Model FLOP of a sample, forward and backward, without recomputation."""
        layers, projectors = self.forward_flops()
        times = {"all": (3.0, 3.0), "projector": (1.0, 3.0), "none": (1.0, 1.0)}[self.trained]
        return times[0] * layers + times[1] * projectors
