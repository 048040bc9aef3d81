"""Every term of the step time against hand-computed values."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.calibration import TERMS, Calibration
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.formulations.latency import StepTime, memory_bytes, step_time, violations
from taut.formulations.mechanisms.latency_models import ALL_STAGES, SLOWEST_RING, LatencyModel, LatencyName
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from tests.support.instances import random_problem
from tests.support.small import candidate, cluster, costs, in_order, model, problem, strategy

GRADIENT = 4.0
"""Bytes of a main gradient in fp32 beside bf16 weights."""
MESSAGE = 12_800.0
"""100 tokens x 64 channels x 2 bytes."""
LAYER = 12 * 64 * 64 + 13 * 64
"""Parameters of a plain layer: 12 h^2 of matrices, 9 h of biases (3 + 1 + 4 + 1) and 4 h of norms."""


def priced(given: PlanningProblem, choice: Candidate, *ends: int, recompute: str = "none") -> StepTime:
    return step_time(given, strategy(choice, *ends, recompute=recompute), in_order(choice))


def test_one_device_takes_its_layers_times_micro_batches() -> None:
    """Without any parallelism the step is m times all layers."""
    # 4 layers x 3 s; m = 8 micro-batches one after the other: 12 + 7 x 12 = 96 s.
    time = priced(problem(cluster(1, 1)), candidate(1, 1, 1), 4)
    assert time.total == pytest.approx(96.0)
    assert time.compute == pytest.approx(96.0)


def test_even_pipeline_pays_bubble_straggler_and_hidden_trips() -> None:
    """Pipette on even stages: sum of stages, (m - 1) stragglers, and m / pp trips there and back."""
    # Stages of 6 s: 12 + 7 x 6 = 54 s. A hop: 12,800 B at 1 GB/s, both ways = 25.6 us; 8 / 2 = 4 trips.
    time = priced(problem(cluster(2, 1)), candidate(2, 1, 1), 2, 4)
    assert time.compute == pytest.approx(54.0)
    assert time.pipeline_transfers == pytest.approx(4 * 25.6e-6)
    assert time.total == pytest.approx(54.0 + 4 * 25.6e-6, rel=1e-12)


def test_uneven_pipeline_is_paced_by_its_longest_stage() -> None:
    """On uneven stages the straggler is the longest stage, the sum stays."""
    # Stages of 3 and 9 s: 12 + 7 x 9 = 75 s.
    assert priced(problem(cluster(2, 1)), candidate(2, 1, 1), 1, 4).compute == pytest.approx(75.0)


def test_unlike_layers_send_what_the_cut_layer_puts_out() -> None:
    """The message of a hop is the output of the layer before the cut."""
    # Cut after layer 0 (hidden 64): 12,800 B; after layer 1 (hidden 32): 6,400 B; m = 8, pp = 2: 4 trips both ways.
    given = problem(cluster(2, 1), model(unlike=True))
    choice = candidate(2, 1, 1)
    assert priced(given, choice, 1, 4).pipeline_transfers == pytest.approx(4 * 2 * 12_800e-9)
    assert priced(given, choice, 2, 4).pipeline_transfers == pytest.approx(4 * 2 * 6_400e-9)


@pytest.mark.parametrize(
    ("latency_model", "schedule", "trips"),
    [
        ("pipette", "1f1b", 2.0),  # max(1, m / pp) = 8 / 4
        ("pipette", "gpipe", 1.0),
        ("pipette-printed", "1f1b", 6.0),  # m / pp x (pp - 1) = 2 x 3
        ("pipette-printed", "gpipe", 1.0),
        ("amp", "1f1b", 1.0),
        ("amp", "gpipe", 1.0),
    ],
)
def test_trips_by_latency_model_and_schedule(latency_model: LatencyName, schedule: str, trips: float) -> None:
    """The factor on T_PP is the one that each latency model states; AMP's hops go one way."""
    # 3 hops of 12.8 us one way at 1 GB/s.
    given = problem(cluster(4, 1), latency_model=latency_model)
    ways = 1 if latency_model == "amp" else 2
    time = priced(given, candidate(4, 1, 1, schedule=schedule), 1, 2, 3, 4)
    assert time.pipeline_transfers == pytest.approx(trips * ways * 3 * 12.8e-6)
    assert time.compute == pytest.approx(12.0 + 7 * 3.0)


def test_few_micro_batches_pay_one_full_trip_except_as_printed() -> None:
    """With m < pp the trip is paid once in pipette, and m / pp (pp - 1) times as printed."""
    # m = 2, pp = 4: max(1, 1/2) = 1; printed 1/2 x 3 = 1.5. 3 hops there and back: 76.8 us.
    choice = candidate(4, 1, 1, m=2)
    pipette = problem(cluster(4, 1), global_batch=2)
    printed = problem(cluster(4, 1), global_batch=2, latency_model="pipette-printed")
    assert priced(pipette, choice, 1, 2, 3, 4).pipeline_transfers == pytest.approx(76.8e-6)
    assert priced(printed, choice, 1, 2, 3, 4).pipeline_transfers == pytest.approx(1.5 * 76.8e-6)


def test_asymmetric_links_are_summed_both_ways() -> None:
    """A hop sends the activation one way and the gradient back, each at its own rate."""
    # 12,800 B at 2 GB/s there (6.4 us), at 0.5 GB/s back (25.6 us); 4 trips; AMP: there alone, once.
    rows = [[0.0, 2.0], [0.5, 0.0]]
    choice = candidate(2, 1, 1)
    assert priced(problem(cluster(2, 1, rows=rows)), choice, 2, 4).pipeline_transfers == pytest.approx(4 * 32e-6)
    amp = problem(cluster(2, 1, rows=rows), latency_model="amp")
    assert priced(amp, choice, 2, 4).pipeline_transfers == pytest.approx(6.4e-6)


def test_latency_is_paid_on_every_hop() -> None:
    """Each hop adds the latency of both directions."""
    # One hop: 2 x (50 us + 12.8 us), 4 trips.
    given = problem(cluster(2, 1, latency_us=50))
    assert priced(given, candidate(2, 1, 1), 2, 4).pipeline_transfers == pytest.approx(4 * 2 * 62.8e-6)


def test_slowest_pipeline_counts() -> None:
    """Of two pipelines the one over the slower links sets the step time."""
    # Replica 0 on nodes 0, 2 (1 GB/s), replica 1 on nodes 1, 3 (0.1 GB/s): 4 trips of 2 x 128 us, m = 4: 2 trips.
    rows = np.ones((4, 4))
    rows[1, 3] = rows[3, 1] = 0.1
    choice = candidate(2, 1, 2, m=4)
    time = priced(problem(cluster(4, 1, rows=rows.tolist())), choice, 2, 4)
    assert time.pipeline_transfers == pytest.approx(2 * 2 * 128e-6)


def test_tensor_ring_is_paid_per_layer_and_micro_batch() -> None:
    """Four all-reduces a layer, six under full recompute, over the slowest link of the group."""
    # ring = 2 (2-1)/2 x 12,800 / 10 GB/s + 2 x 1 x 3 us = 1.28 + 6 = 7.28 us; 4 layers x 4; m = 8 micro-batches.
    given = problem(cluster(1, 2, intra_latency_us=3))
    choice = candidate(1, 2, 1)
    assert priced(given, choice, 4).tensor_parallel == pytest.approx(8 * 4 * 4 * 7.28e-6)
    full = priced(given, choice, 4, recompute="full")
    assert full.tensor_parallel == pytest.approx(8 * 4 * 6 * 7.28e-6)
    # Full recompute repeats the forward second of each layer: 8 x 4 x 4 s.
    assert full.compute == pytest.approx(128.0)


def test_tensor_group_runs_at_its_slowest_link_in_either_direction() -> None:
    """A device-by-device matrix with one slow direction slows the whole ring."""
    # The slow direction is 0.1 GB/s: ring = 12,800 / 0.1e9 = 128 us.
    rows = [[0.0, 10.0], [0.1, 0.0]]
    time = priced(problem(cluster(1, 2, rows=rows)), candidate(1, 2, 1), 4)
    assert time.tensor_parallel == pytest.approx(8 * 16 * 128e-6)


def test_sequence_parallelism_divides_the_pipeline_message() -> None:
    """With sequence parallelism a tensor rank sends its share of the activation."""
    # 12,800 / 2 B at 1 GB/s both ways, 4 trips.
    given = problem(cluster(2, 2))
    choice = candidate(2, 2, 1, sequence_parallel=True)
    assert priced(given, choice, 2, 4).pipeline_transfers == pytest.approx(4 * 2 * 6.4e-6)


def test_data_ring_between_nodes_counts_stage_zero() -> None:
    """Pipette's ring moves the gradients of stage 0 alone."""
    # Two replicas on two nodes: 2 (2-1)/2 x (3 layers) x 4 B / 1 GB/s.
    given = problem(cluster(4, 1), global_batch=8)
    time = priced(given, candidate(2, 1, 2, m=4), 3, 4)
    assert time.data_parallel == pytest.approx(3 * LAYER * GRADIENT / 1e9)


def test_data_ring_inside_a_node_is_paid_twice() -> None:
    """The hierarchical ring makes two passes inside nodes and one between them."""
    # 2 nodes x 2 replicas: 4 (2-1)/2 M / 10 GB/s + 2 (2-1)/2 M / 1 GB/s with M the gradients of 4 layers.
    gradients = 4 * LAYER * GRADIENT
    time = priced(problem(cluster(2, 2), global_batch=8), candidate(1, 1, 4, m=2), 4)
    assert time.data_parallel == pytest.approx(2 * gradients / 10e9 + gradients / 1e9)


def test_uneven_nodes_wait_for_the_fullest() -> None:
    """With 2 replicas on one node and 1 on another the node with two sets the inner rings."""
    # Stage 0 on devices 0, 1 (node 0) and 2 (node 1): 4 (1/2) M / 10e9 + 2 (1/2) M / 1e9, M the gradients of a layer.
    given = problem(cluster(3, 2), model(2), global_batch=3)
    choice = candidate(2, 1, 3, m=1)
    gradients = LAYER * GRADIENT
    time = priced(given, choice, 1, 2)
    assert time.data_parallel == pytest.approx(2 * gradients / 10e9 + gradients / 1e9)


def test_amp_ring_is_flat_and_takes_the_slowest_stage() -> None:
    """AMP's ring is one ring over the slowest link of the group, the largest over all stages."""
    # Stage 1 holds 3 of 4 layers; its replicas on nodes 2, 3: ring = 2 (2-1)/2 x 3 layers / 1 GB/s + 2 x 50 us.
    given = problem(cluster(4, 1, latency_us=50), latency_model="amp")
    time = priced(given, candidate(2, 1, 2, m=4), 1, 4)
    assert time.data_parallel == pytest.approx(3 * LAYER * GRADIENT / 1e9 + 100e-6)


@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0])
def test_amp_ring_is_multiplied_by_its_coefficient_with_its_latencies(weight: float) -> None:
    """A calibration's coefficient of data-parallel rings scales all of AMP's ring, also where latencies are most."""
    given = problem(cluster(4, 1, latency_us=1e6), latency_model="amp")
    coefficients = dict.fromkeys(TERMS, 1.0) | {"data_parallel": weight}
    scaled = replace(given, calibration=Calibration(name="c", coefficients=coefficients))
    choice = candidate(1, 1, 4, m=2)
    plain, ring = (priced(each, choice, 4).data_parallel for each in (given, scaled))
    # Six steps of a second each, and bytes that take far less.
    assert plain > 6.0
    assert ring == pytest.approx(weight * plain)


def test_network_cards_are_shared_by_rings_and_transfers() -> None:
    """A node's cards are divided by its devices in rings and by the tensor group in pipeline transfers."""
    # Cards of 4 Gb/s = 0.5 GB/s on nodes of 2: rings at 0.25 GB/s; pipeline transfers of tp = 1 at 0.5 GB/s.
    given = problem(cluster(2, 2, nic_gbps=4))
    ring = priced(given, candidate(1, 1, 4, m=2), 4).data_parallel
    gradients = 4 * LAYER * GRADIENT
    assert ring == pytest.approx(2 * gradients / 10e9 + gradients / 0.25e9)
    # Stages on devices 0, 2 and 1, 3: every hop crosses nodes.
    choice = candidate(2, 1, 2, m=4)
    time = step_time(given, strategy(choice, 2, 4), np.array([[[0], [1]], [[2], [3]]]))
    assert time.pipeline_transfers == pytest.approx(2 * 2 * MESSAGE / 0.5e9)


def test_stage_runs_at_its_slowest_device_type() -> None:
    """A stage on a slower device type takes that type's seconds."""
    # Type b is 3 times slower: stages of 6 and 18 s: 24 + 7 x 18 = 150 s; the other way round the same.
    nodes = cluster(2, 1, devices=("a", "b"))
    given = problem(nodes, table=costs(model(), devices={"a": 1.0, "b": 3.0}))
    assert priced(given, candidate(2, 1, 1), 2, 4).compute == pytest.approx(150.0)


def test_optimizer_runs_on_stage_zero_and_is_shared_under_zero_one() -> None:
    """The optimizer takes its rate times the parameters of stage 0, over dp under ZeRO-1; printed models omit it."""
    # 1 us a parameter, 2 layers in stage 0.
    table = costs(model(), optimizer=1e-6)
    given = problem(cluster(4, 1), table=table)
    plain = priced(given, candidate(2, 1, 2, m=4), 2, 4)
    shared = priced(given, candidate(2, 1, 2, m=4, zero=1), 2, 4)
    assert plain.optimizer == pytest.approx(2 * LAYER * 1e-6)
    assert shared.optimizer == pytest.approx(LAYER * 1e-6)
    printed = problem(cluster(4, 1), table=table, latency_model="pipette-printed")
    assert priced(printed, candidate(2, 1, 2, m=4), 2, 4).optimizer == 0.0


def test_many_placements_price_as_each_alone() -> None:
    """A batch of placements gives each one's own price."""
    rng = np.random.default_rng(1)
    given = problem(cluster(2, 2, rows=rng.uniform(0.5, 2, (4, 4)).tolist()))
    choice = candidate(2, 1, 2, m=4)
    placements = np.array([rng.permutation(4).reshape(2, 2, 1) for _ in range(10)])
    together = step_time(given, strategy(choice, 2, 4), placements).total
    alone = [float(step_time(given, strategy(choice, 2, 4), devices).total) for devices in placements]
    assert together == pytest.approx(alone, rel=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_devices_of_one_site_may_change_places(seed: int) -> None:
    """Step time and memory of any placement are those of the same sites, to the last bit, whatever the devices."""
    given = random_problem(seed, large=seed % 2 == 0, experts=seed % 3 == 0)
    rng, site_of = np.random.default_rng(seed), given.links.site_of
    for choice in given.candidates[:: max(len(given.candidates) // 6, 1)]:
        devices = rng.permutation(given.cluster.num_devices)
        moved = devices.copy()
        for site in np.unique(site_of):
            here = site_of[devices] == site
            moved[here] = rng.permutation(devices[here])
        shape, ends = (choice.pp, choice.pipelines, choice.width), range(1, choice.pp * choice.vpp)
        layers = given.num_layers(choice)
        if layers < choice.pp * choice.vpp:
            continue
        chosen = strategy(choice, *ends, layers, recompute=given.recompute_of(choice)[0])
        one, other = (step_time(given, chosen, each.reshape(shape)) for each in (devices, moved))
        assert one == other, choice


def test_memory_counts_parameters_and_micro_batches_in_flight() -> None:
    """A stage's bytes are its states and the activations of the micro-batches in flight."""
    # Stage 0 of 1F1B holds 2 micro-batches of 2 layers x 1000 B, stage 1 one; 18 bytes a parameter; one message in,
    # one out.
    given = problem(cluster(2, 1))
    assert memory_bytes(given, strategy(candidate(2, 1, 1), 2, 4)) == [
        2 * LAYER * 18 + 2 * 2 * 1000 + 2 * MESSAGE,
        2 * LAYER * 18 + 1 * 2 * 1000 + 2 * MESSAGE,
    ]


def test_zero_one_shares_states_and_gpipe_holds_every_micro_batch() -> None:
    """ZeRO-1 divides the 12 bytes of states by dp; GPipe keeps all m micro-batches."""
    given = problem(cluster(4, 1))
    choice = candidate(2, 1, 2, m=4, zero=1, schedule="gpipe")
    assert memory_bytes(given, strategy(choice, 2, 4)) == [2 * LAYER * 12 + 4 * 2 * 1000 + 2 * MESSAGE] * 2


def test_full_recompute_keeps_less_and_needs_workspace() -> None:
    """Under full recompute a tenth stays, and one layer's activations come back for a moment."""
    # Stage 0: 2 in flight x 2 layers x 100 B, and 1000 - 100 B of workspace.
    given = problem(cluster(2, 1))
    need = memory_bytes(given, strategy(candidate(2, 1, 1), 2, 4, recompute="full"))
    assert need[0] == 2 * LAYER * 18 + 2 * 2 * 100 + 900 + 2 * MESSAGE


@pytest.mark.parametrize(
    ("pp", "dp", "zero", "held"),
    [
        # 18 bytes a parameter; stage 1 halves the 12 of states, stage 2 also the 4 of gradients, stage 3 also the 2 of
        # weights but gathers two layers (of the four) in their place. Both hold 2 + 4 bytes of a layer's gradients
        # until they are summed.
        (1, 2, 0, 4 * 18),
        (1, 2, 1, 4 * 12),
        (1, 2, 2, 4 * 10 + 6),
        (1, 2, 3, 4 * 9 + 2 * 2 + 6),
        # Within a pipeline stages 2 and 3 keep the stage's gradients whole beside their shards, stage 3 its weights
        # too, and both the 2 bytes of a layer's gradients that are added to them.
        (2, 2, 3, 2 * 9 + 2 * 6 + 2),
        (2, 2, 2, 2 * 10 + 2 * 4 + 2),
        # One replica shares nothing.
        (2, 1, 3, 2 * 18),
    ],
)
def test_zero_stages_share_states_gradients_and_weights(pp: int, dp: int, zero: int, held: int) -> None:
    """Each ZeRO stage divides what it says by dp; stage 3 gathers weights, pipelines keep gradients whole."""
    given = problem(cluster(pp * dp, 1))
    need = memory_bytes(given, strategy(candidate(pp, 1, dp, m=1, zero=zero), *range(4 // pp, 5, 4 // pp)))
    messages = 2 * MESSAGE if pp > 1 else 0
    assert need[0] == held * LAYER + 4 // pp * 1000 + messages


def test_head_holds_its_logits_for_a_moment() -> None:
    """The last stage needs eight bytes for every logit beside what the head keeps."""
    spoken = model().model_copy(update={"vocab": 1000})
    block = costs(spoken).rows[0]
    edges = [block.model_copy(update={"kind": kind, "activation_bytes": 0}) for kind in (EMBEDDING, HEAD)]
    table = costs(spoken).model_copy(update={"rows": [*costs(spoken).rows, *edges]})
    choice = strategy(candidate(2, 1, 1), 2, 4)
    silent, speaking = (problem(cluster(2, 1), spec, table=table) for spec in (model(), spoken))
    # 1000 words are padded to 1024; 100 tokens; the table keeps nothing for embedding and head.
    more = memory_bytes(speaking, choice)[1] - memory_bytes(silent, choice)[1]
    norm = 2 * 64
    assert more == 18 * (1024 * 64 + norm) + 8 * 100 * 1024


def test_gradients_wait_for_their_sum_when_the_logits_are_gone() -> None:
    """Of the loss's copies and a layer's gradients before they are summed, a device needs room for the larger."""
    spoken = model().model_copy(update={"vocab": 1000})
    block = costs(spoken).rows[0]
    edges = [block.model_copy(update={"kind": kind, "activation_bytes": 0}) for kind in (EMBEDDING, HEAD)]
    table = costs(spoken).model_copy(update={"rows": [*costs(spoken).rows, *edges]})
    choice, given = strategy(candidate(1, 1, 2, zero=2), 4), problem(cluster(2, 1), spoken, table=table)
    fused = replace(given, memory=given.memory.model_copy(update={"fused_loss": "te"}))
    # 8 bytes for each of 100 x 1024 logits; 6 for each parameter of the embedding, which is larger than a layer.
    largest = max(LAYER, 1024 * 64)
    more = memory_bytes(given, choice)[0] - memory_bytes(fused, choice)[0]
    assert more == 8 * 100 * 1024 - 6 * largest > 0


def test_a_fused_loss_may_keep_its_gradient_apart() -> None:
    """Two bytes for each of 100 x 1024 logits that a fused loss does not overwrite, on one stage."""
    spoken = model().model_copy(update={"vocab": 1000})
    block = costs(spoken).rows[0]
    edges = [block.model_copy(update={"kind": kind, "activation_bytes": 0}) for kind in (EMBEDDING, HEAD)]
    table = costs(spoken).model_copy(update={"rows": [*costs(spoken).rows, *edges]})
    choice, given = strategy(candidate(1, 1, 1), 4), problem(cluster(1, 1), spoken, table=table)
    needs = [
        memory_bytes(replace(given, memory=given.memory.model_copy(update=fields)), choice)[0]
        for fields in ({"fused_loss": "te"}, {"fused_loss": "te", "fused_logit_bytes": 2})
    ]
    assert needs[1] - needs[0] == 2 * 100 * 1024


def test_violations_name_what_is_wrong() -> None:
    """Stages, devices, tensor groups and memory are each refused with a line of their own."""
    given = problem(cluster(2, 2))
    choice = candidate(2, 2, 1)
    good = in_order(choice)
    assert violations(given, strategy(choice, 2, 4), good) == ()
    assert "stages" in str(violations(given, strategy(choice, 2, 3), good)[0])
    assert "stages" in str(violations(given, strategy(choice, 0, 4), good)[0])
    assert "exactly once" in str(violations(given, strategy(choice, 2, 4), np.zeros_like(good))[0])
    torn = np.array([[[0, 2]], [[1, 3]]])
    assert "tensor group" in str(violations(given, strategy(choice, 2, 4), torn)[0])
    tight = problem(cluster(2, 2, memory_gib=1e-4))
    assert "KiB" in str(violations(tight, strategy(choice, 2, 4), good)[0])


def test_models_of_one_way_hops_price_no_orders() -> None:
    """Bounds of orders take hops there and back for granted."""
    alike: dict[str, Any] = {"name": "amp", "trips": lambda m, p: 1.0, "both_ways": False}
    with pytest.raises(AssertionError):
        LatencyModel(waits=SLOWEST_RING, prices_orders=True, **alike)
    with pytest.raises(AssertionError):
        LatencyModel(waits=ALL_STAGES, **alike)


def test_a_copy_with_other_inputs_makes_tables_of_its_own() -> None:
    """A problem copied with another cost table has the prices of a new one, and the first keeps its own."""
    given, choice, table = problem(cluster(1, 2)), candidate(1, 1, 2), costs(model(), seconds={"block": 0.05})
    known = priced(given, choice, 4)
    fresh = problem(cluster(1, 2), model(), table=table)
    assert priced(replace(given, costs=table), choice, 4) == priced(fresh, choice, 4) != known
    assert priced(given, choice, 4) == known
