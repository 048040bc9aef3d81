r"""
Bytes of weights, gradients and optimizer states on a device.

With P parameters of a range of layers on a device, P' of them of experts, :math:`w, g, o` bytes of weight, gradient and
state for each, and :math:`d_k` the devices that share one copy under ZeRO stage k or above and 1 otherwise (of experts
those that hold the same, all or a copy's),

(1) they take :math:`\lceil (P - P') w / d_3 \rceil + \lceil P' w / d'_3 \rceil`, with gradients :math:`g, d_2, d'_2`
    and states :math:`o, d_1, d'_1` alike; under stage 3 beside them two of the largest layer's weights, and in a
    pipeline the range's weights and gradients whole (``taut.formulations.tables.memory`` (1));
(2) moments in half precision are updated in single precision, of one parameter group at a time, experts or all others:
    :math:`8 \max(\lceil (P - P') / d_1 \rceil, \lceil P' / d'_1 \rceil)` bytes beside (1), when no activations are
    kept;
(3) under stages 2 and 3 the gradients of a layer are whole until the replicas have summed them, first in the weights'
    format, as the pass leaves them, and copied into that of the sum for the reduce-scatter, which the next layer's
    gradients wait for: :math:`w + g` bytes for each parameter of the largest layer. Under stage 3 in a pipeline, where
    (1) has the summed ones whole, the copy is made when no activations are left, and :math:`w` bytes remain.

Sources of (3): PyTorch's FSDP2, ``post_backward`` in ``_fsdp_param_group.py`` and ``foreach_reduce`` in
``_fsdp_collectives.py``; Megatron-FSDP and DeepSpeed have buckets of about a layer's gradients.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.data.memory import MOMENTS_CAST, ParameterBytes
from taut.formulations.space import Candidate


def held_bytes(
    parameters: Ints, largest: Ints, per_parameter: ParameterBytes, candidate: Candidate, experts: Ints | int = 0
) -> tuple[Ints, Ints, Ints]:
    """
    Bytes of weights, gradients and optimizer states, (1).

    ``parameters``: parameters of ranges on a tensor rank, of any shape; ``largest``: parameters of their largest
    layers, of the same shape; ``per_parameter``: bytes of weight, gradient and state for a parameter; ``candidate``:
    degrees and ZeRO stage; ``experts``: parameters of experts that fewer devices hold than the others. Returns three
    arrays of that shape, in bytes.
    """
    zero = candidate.zero
    weight, gradient, _ = (parameters * count for count in per_parameter)
    weights, gradients, states = (
        _shared(parameters - experts, count, candidate.shards if zero >= stage else 1)
        + _shared(experts, count, candidate.expert_shards if zero >= stage else 1)
        for count, stage in zip(per_parameter, (3, 2, 1), strict=True)
    )
    if zero == 3 and candidate.dp_cp > 1:
        whole = candidate.pp > 1
        weights = weights + (weight if whole else 2 * largest * per_parameter.weight)
        gradients = gradients + (gradient if whole else 0)
    return np.asarray(weights), np.asarray(gradients), np.asarray(states)


def _shared(parameters: Ints | int, count: int, devices: int) -> Ints | int:
    """So many bytes of each parameter, shared by some devices and rounded up."""
    return -(-parameters * count // devices)


def unsummed_bytes(largest: Ints, per_parameter: ParameterBytes, candidate: Candidate) -> Ints:
    """
    Bytes of the gradients of a layer before the replicas have summed them, (3).

    ``largest``, ``per_parameter``, ``candidate``: as of ``held_bytes``.
    """
    if candidate.zero < 2 or candidate.dp_cp == 1:
        return np.zeros_like(largest)
    piped = candidate.zero == 3 and candidate.pp > 1
    return np.asarray(largest * (per_parameter.weight + (0 if piped else per_parameter.gradient)))


def cast_bytes(parameters: Ints, candidate: Candidate, experts: Ints | int = 0) -> Ints:
    """
    Bytes of moments in single precision while the larger parameter group is updated, (2).

    ``parameters``, ``candidate``, ``experts``: as of ``held_bytes``.
    """
    shards, of_experts = (candidate.shards, candidate.expert_shards) if candidate.zero else (1, 1)
    others = -(-(parameters - experts) * MOMENTS_CAST // shards)
    return np.asarray(np.maximum(others, -(-experts * MOMENTS_CAST // of_experts)))
