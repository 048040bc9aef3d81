"""Random problems whose layers mix tokens otherwise than by plain attention, or have gates and indexers."""

from dataclasses import replace
from typing import Any

import numpy as np

from taut.data.model import ModelSpec
from taut.formulations.problem import PlanningProblem
from tests.support.instances import random_problem


def with_mixed_layers(seed: int) -> PlanningProblem:
    """A random problem, with experts in every second: a third of its kinds have a mixer, a third a gate or indexer."""
    given = random_problem(seed, experts=seed % 2 == 0)
    rng, kinds = np.random.default_rng((seed, 11)), dict[str, dict[str, Any]]()
    for kind, layer in given.model.kinds.items():
        values = layer.model_dump(exclude={"kind"})
        chance = rng.random()
        if chance < 0.33:
            sizes = {"key_dim": int(rng.choice([1, 4, 8])), "value_dim": int(rng.choice([4, 16]))}
            values["mixer"] = sizes | {
                **{"made": 4 * int(rng.integers(4, 40)), "convolved": int(rng.choice([0, 32])), "taps": 4},
                **{"made_whole": int(rng.choice([0, 8])), "second_parameters": int(rng.choice([0, 64]))},
                **{"chunk": int(rng.choice([0, 2, 8])), "delta_rule": bool(rng.random() < 0.5)},
            }
            values |= dict.fromkeys(("latent", "kv_heads", "head_dim", "attention_window"))
        elif chance < 0.67:
            values["attention_gate"] = int(rng.choice([4, 64]))
            if latent := values.get("latent"):
                values["latent"] = latent | {"index_heads": 2, "index_dim": 8}
        kinds[kind] = values
    layers = [{"kind": layer.kind, **kinds[layer.kind]} for layer in given.model.blocks]
    whole: dict[str, Any] = {"vocab": given.model.vocab, "tied_embedding": given.model.tied_embedding}
    if given.model.vocab and seed % 3 == 0:
        whole["position_rows"] = 24
    return replace(given, model=ModelSpec.parse({"name": "mixed", "layers": layers, **whole}, "mixed"))
