"""
How a framework computes the cross entropy, and the bytes that it holds of every entry of the logits.

With e = 2 bytes of half precision, and 4 of single precision:

==========  ====  =======  ===========================================================================================
loss        kept  passing  what they are
==========  ====  =======  ===========================================================================================
``none``    4     model's  kernels one after another: the softmax, and copies by the memory model's fields
``native``  4     e        Megatron-LM's fused loss: the softmax, beside the logits forward and their gradient backward
``te``      e     model's  Transformer Engine's and its like: the gradient overwrites the logits
``te``      e     4        the same from release 2.18 on: the gradient is kept in single precision beside the logits
==========  ====  =======  ===========================================================================================

``native`` differs from Megatron-LM's ``none`` in the number of kernels and reductions, not in bytes: both make
a copy in single precision, which later operations overwrite (``megatron/core/tensor_parallel/cross_entropy.py``,
``megatron/core/fusions/fused_cross_entropy.py``; ``transformer_engine/pytorch/triton/cross_entropy.py``).
"""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator

LossKind = Literal["none", "native", "te"]
LOSSES: tuple[LossKind, ...] = get_args(LossKind)
HALF_BYTES, SINGLE_BYTES = 2, 4
GRADIENT_APART = (2, 18)
"""Release of Transformer Engine from which its loss keeps the gradient in single precision beside the logits."""


def as_loss(value: object) -> object:
    """A loss by its name; true, which says that the gradient overwrites the logits, is ``te``, false ``none``."""
    word = str(value).lower() if isinstance(value, (bool, str)) else ""
    return {"true": "te", "false": "none"}.get(word, value)


FusedLoss = Annotated[LossKind, BeforeValidator(as_loss, json_schema_input_type=LossKind | bool)]
"""Field of a file: the name of a loss, or a truth value."""
