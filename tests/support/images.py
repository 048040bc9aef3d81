"""Random problems whose model has an encoder of images."""

from dataclasses import replace

import numpy as np

from taut.data.costs import CostTable
from taut.data.layers.encoder import EncoderSpec
from taut.data.layers.layer import EMBEDDING, ENCODER
from taut.formulations.problem import PlanningProblem


def with_encoder(given: PlanningProblem, seed: int) -> PlanningProblem:
    """
    The problem with an encoder before its embedding; one without vocabulary as it is.

    All of it is trained, its projectors or nothing. In half of the problems tensor ranks share the encoder. In a third
    its layers are recomputed where they are trained.
    """
    if not given.model.vocab:
        return given
    rng = np.random.default_rng((seed, 31))
    hidden, trained = given.model.blocks[0].hidden, ("all", "projector", "none")[seed % 3]
    width = int(rng.choice([32, 48]))
    encoder = EncoderSpec(
        layers=int(rng.integers(1, 4)),
        hidden=width,
        heads=width // 8,
        ffn_hidden=2 * width,
        gated_mlp=bool(rng.random() < 0.5),
        patches=8,
        patch_dim=12,
        position_rows=int(rng.choice([0, 8])),
        window=4 if rng.random() < 0.5 else None,
        merge=4,
        projector=[[4 * width, 4 * width], [4 * width, hidden]] if rng.random() < 0.5 else [[width, hidden]],
        projectors=int(rng.integers(1, 3)),
        images=float(rng.choice([0.5, 1.0, 1.5])),
        most_images=2,
        trained=trained,
        tensor_parallel=bool(rng.random() < 0.5),
        recompute=trained == "all" and bool(rng.random() < 0.33),
    )
    model = given.model.model_copy(update={"encoder": encoder})
    # A copy keeps what the model has computed of its layers.
    model = type(given.model).parse(model.model_dump(exclude_none=True), "images")
    return replace(given, model=model).with_costs(_with_rows(given.costs, encoder, rng))


def _with_rows(costs: CostTable, encoder: EncoderSpec, rng: np.random.Generator) -> CostTable:
    """The costs with rows of the encoder, each at random from the embedding's."""
    found = []
    for row in costs.rows:
        if row.kind == EMBEDDING:
            times, kept = rng.uniform(0.2, 4.0, 3), int(rng.integers(0, 4000))
            seconds = dict(zip(("forward_s", "input_grad_s", "weight_grad_s"), times.tolist(), strict=True))
            base = max(row.forward_s, 1e-4)
            update = {name: base * value for name, value in seconds.items()}
            update |= {
                "kind": ENCODER,
                "seq": encoder.patches,
                "activation_bytes": kept,
                "activation_bytes_sp": kept // 2,
            }
            found.append(row.model_copy(update=update))
    return costs.model_copy(update={"rows": [*costs.rows, *found]})
