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
            values["mixer"] |= {"attends": int(rng.choice([0, 0, 6])), "output": bool(rng.random() < 0.8)}
            values |= dict.fromkeys(("latent", "kv_heads", "head_dim", "attention_window"))
        elif chance < 0.67:
            values["attention_gate"] = int(rng.choice([4, 64]))
            if latent := values.get("latent"):
                values["latent"] = latent | {"index_heads": 2, "index_dim": 8}
        kinds[kind] = _with_parts(values, rng)
    layers = [{"kind": layer.kind, **kinds[layer.kind]} for layer in given.model.blocks]
    whole: dict[str, Any] = {"vocab": given.model.vocab, "tied_embedding": given.model.tied_embedding}
    if given.model.vocab and seed % 3 == 0:
        whole["position_rows"] = 24
    if given.model.vocab and seed % 4 == 1:
        whole["further_embedding"] = 4000
    return replace(given, model=ModelSpec.parse({"name": "mixed", "layers": layers, **whole}, "mixed"))


def with_further_tokens(given: PlanningProblem, seed: int) -> PlanningProblem | None:
    """The problem with one or two further tokens, each through some kinds of layers, with weights of its own or not."""
    model, rng = given.model, np.random.default_rng((seed, 12))
    sizes = model.blocks[-1].hidden, model.blocks[-1].seq
    kinds = [
        kind
        for kind, layer in model.kinds.items()
        if (layer.hidden, layer.seq) == sizes and layer.streams == 1 and layer.kv_matrices
    ]
    if not (model.vocab and kinds and model.blocks[-1].streams == 1):
        return None
    chosen = [str(kind) for kind in rng.choice(kinds, 1 + seed % 3)]
    more = {"mtp_layers": 1 + seed % 2, "mtp_kinds": chosen, "mtp_repeated": bool(rng.random() < 0.5)}
    return replace(given, model=ModelSpec.parse(model.model_dump(exclude_none=True) | more, "further"))


def _with_parts(values: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The values with one part only, values or keys made otherwise, further products, streams, or a layer beside."""
    plain = values.get("mixer") is None and values.get("latent") is None
    if (chance := rng.random()) < 0.2:
        values["only"] = "feed_forward" if values.get("experts") or rng.random() < 0.5 else "attention"
        if values["only"] == "feed_forward":
            values |= dict.fromkeys(("mixer", "latent", "attention_gate", "attention_window")) | {"qk_norm": False}
    elif chance < 0.4 and plain:
        values["kv_matrices"] = int(rng.integers(2))
        if not values.get("attention_gate"):
            values["value_head_dim"] = int(rng.choice([4, 8]))
    if rng.random() < 0.25:
        product = {"sums": values["hidden"], "columns": 4 * int(rng.integers(1, 10)), "mixes": bool(chance < 0.5)}
        values["adjoined"] = [product | {"split": bool(rng.random() < 0.5), "idle": bool(rng.random() < 0.2)}]
    if values.get("experts") and rng.random() < 0.3:
        values["experts"] = values["experts"] | {"latent_hidden": int(rng.choice([8, 24]))}
    if rng.random() < 0.2:
        values["streams"] = int(rng.integers(2, 5))
    if rng.random() < 0.3:
        same = {name: values[name] for name in ("hidden", "heads", "seq", "gated_mlp", "head_dim", "kv_heads")}
        mixer = {"key_dim": 4, "value_dim": 4, "made": 32, "scanned": int(rng.choice([0, 4]))}
        mamba = same | {"mixer": mixer, "only": "attention", "head_dim": None, "kv_heads": None}
        dense = same | {"ffn_hidden": values.get("ffn_hidden") or 64}
        values["beside"] = mamba if rng.random() < 0.5 else dense
    return values
