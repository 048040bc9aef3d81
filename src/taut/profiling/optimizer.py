r"""
Seconds that the optimizer takes for one parameter.

A step does, on all parameters of one layer: (1) gradients to fp32 where they are kept in another type; (2) fused Adam
on fp32 weights with two fp32 moments; (3) the weights back to the number format of the training, if that is another.
The figure is the median step divided by the number of parameters; on a GPU a small layer has launches in it that
a larger model's step would spread.
"""

from collections.abc import Iterator

import torch
from torch import nn

from taut.profiling.timing import time_passes


def adam_seconds_per_parameter(module: nn.Module, gradient_dtype: torch.dtype, *, warm_up: int, repeats: int) -> float:
    """
    Seconds of Adam for one parameter.

    ``module``: the layer; its weights change; ``gradient_dtype``: number format in which the gradients are kept;
    ``warm_up``, ``repeats``: steps that are not counted, and those that are.
    """
    weights = list(module.parameters())
    gradients = [torch.randn_like(weight, dtype=gradient_dtype) for weight in weights]
    masters = [nn.Parameter(weight.detach().float()) for weight in weights]
    adam = torch.optim.Adam(masters, fused=True)

    def step() -> Iterator[None]:
        with torch.no_grad():
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient.float()
            adam.step()
            for weight, master in zip(weights, masters, strict=True):
                if weight.dtype != master.dtype:
                    weight.copy_(master)
        yield

    timing = time_passes(step, weights[0].device, warm_up=warm_up, repeats=repeats)
    return timing.seconds[0] / sum(weight.numel() for weight in weights)
