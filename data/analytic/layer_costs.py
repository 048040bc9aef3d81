r"""
Layer costs without a profile: the work of a layer by the device's operator model.

Seconds of a pass are the terms of ``taut.data.analytic.layer_work`` times a calibration's coefficients; without a
calibration, memory traffic runs at the device's stated share of its bandwidth and everything else as the operator model
has it. No pass is priced below what the fastest kernels ever measured would take
(``taut.data.analytic.kernel_floors``), unless the device's own operators were. Embedding and head are priced likewise,
and the optimizer moves 30 bytes per parameter. Where a calibration's runs had CUDA graphs whose price is not in its
coefficients (``RECORDING``), passes have further rows, as graphs launch them; none of layers recomputed whole.

Layers with experts, latent attention or norms of queries and keys have the work and keep the bytes of
``taut.data.analytic.routed_layers``. The head keeps its logits in single precision, or as computed
(``taut.data.loss``). Of context ranks each has 1/cp of every sequence, whose tokens attend to the whole window.

Bytes of activations stay for the backward pass by Korthikanti et al. (arXiv 2205.05198, eqs. 1-6), stated there for
2-byte elements:

(1) without sequence parallelism :math:`s b h (10 + 24 / t)` for a plain layer, with it :math:`s b h \cdot 34 / t`;
    where products keep their inputs in a narrower format, those of the four products take its bytes
    (``taut.data.analytic.device_rates``), and the attention output is kept in both;
    without a fused attention kernel also the scores, :math:`5 a w s b / t`, which selective recompute gives up (with
    a fused one they never exist, and selective recompute costs time and saves nothing);
(2) full recompute keeps the layer's input, :math:`2 s b h`, divided by :math:`t` with sequence parallelism;
(3) where selective recompute keeps every second product's output, it keeps the layer's input, queries, values, the
    attention's output, the first feed-forward product's and, gated, the last one's:
    :math:`2 s b (h [+ h] + (2 h_q + h_{kv} + f) / t)`.

Layers with experts, latent attention or norms of queries and keys keep the bytes of
``taut.data.analytic.routed_layers``; under recompute of named modules less what those need not keep
(``taut.data.analytic.recompute_modules``).

An encoder of images costs for a micro-batch, on one tensor rank, products, traffic and launches that are priced as
those of a layer. Sizes are those of ``taut.data.layers.encoder``.

(4) An image, or a window of w of its patches, is a sequence of its own. Its attention core takes twice the seconds of a
    causal core of as many tokens, on whose kernels the operator models are fitted.
(5) A frozen part has a forward pass alone. Trained projectors behind frozen layers need no gradient by their input.
(6) Attention is one kernel, whatever the language model has. Products are in half precision.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from taut.data.analytic.device_rates import (
    ELEMENT_BYTES,
    KEPT_BLOCK,
    Operators,
    Rates,
    Remembered,
    rates_of,
    recorded_by,
)
from taut.data.analytic.layer_work import (
    KINDS,
    LayerShape,
    Passes,
    Product,
    block_passes,
    embedding_passes,
    floors_of,
    head_passes,
    passes_of,
    recomputed,
    selective_shares,
    whole_terms,
)
from taut.data.analytic.offload_modules import offloaded
from taut.data.analytic.operator_times import OperatorModel
from taut.data.analytic.recompute_modules import dropped, recomputed_terms
from taut.data.analytic.routed_layers import TOGETHER, ExpertRanks, Kept, routed_kept, routed_passes
from taut.data.arrays import Floats
from taut.data.calibration import RECORDING, Calibration, uncalibrated
from taut.data.costs import RECOMPUTE, CostRow, CostTable, Key, Module, OffloadModule
from taut.data.device import HALF, DeviceSpec, Precision
from taut.data.layers.encoder import EncoderSpec
from taut.data.layers.experts import USUAL_DISPATCH, DispatchSpec
from taut.data.layers.layer import EMBEDDING, ENCODER, HEAD, LayerSpec
from taut.data.loss import LossKind
from taut.data.model import ModelSpec
from taut.data.units import MOST_BYTES
from taut.errors import DataError


def is_plain(layer: LayerSpec) -> bool:
    """Whether a layer has plain attention without a gate and norms of queries and keys, and no experts."""
    apart = (layer.experts, layer.latent, layer.mixer, layer.attention_gate)
    return all(part is None for part in apart) and not layer.qk_norm and layer.is_usual


def kept_of(
    layer: LayerSpec,
    recompute: str,
    tokens: int,
    rates: Rates,
    share: float,
    modules: tuple[Module, ...],
    *,
    exchanged: bool = False,
) -> Kept:
    """Bytes that a layer keeps, of whose experts' inputs a rank has a share, and which ranks exchange or not."""
    if layer.beside and recompute != "full":
        each = [kept_of(part, recompute, tokens, rates, share, modules, exchanged=exchanged) for part in layer.together]
        return Kept(*(sum(bytes_) for bytes_ in zip(*each, strict=True)))
    if recompute == "selective" and modules:
        scores = "selective" if "core_attn" in modules else "none"
        whole = kept_of(layer, scores, tokens, replace(rates, selective_products=False), 1.0, ())
        less = dropped(layer, modules, tokens, rates)
        kept = Kept(*(max(mine - its, 0) for mine, its in zip(whole, less, strict=True)))
    elif is_plain(layer):
        return Kept(*kept_bytes(layer, recompute, tokens, rates), 0)
    else:
        kept = routed_kept(layer, recompute, tokens, rates, exchanged=exchanged)
    return kept if share == 1.0 else kept._replace(whole=math.ceil(kept.whole * share))


def kept_bytes(layer: LayerSpec, recompute: str, tokens: int, rates: Rates) -> tuple[int, int]:
    """Bytes of a layer that every tensor rank keeps, and bytes that the ranks share, (1) to (3)."""
    element = rates.element
    if recompute == "selective" and rates.selective_products:
        whole = (2 if layer.gated_mlp else 1) * layer.hidden
        return element * tokens * whole, element * tokens * (2 * layer.query_hidden + layer.kv_hidden + layer.ffn)
    return activation_bytes(layer, recompute, tokens, element, rates.fused_attention, rates.kept)


def activation_bytes(
    layer: LayerSpec, recompute: str, tokens: int, element: int, fused: bool, kept: int | None = None
) -> tuple[int, int]:
    """Bytes that every tensor rank keeps, and bytes that the ranks share, (1) and (2); ``kept`` as in ``Rates``."""
    hidden = layer.hidden
    if recompute == "full":
        return element * tokens * hidden, 0
    plain = KEPT_BLOCK * element
    kept = plain if kept is None else kept
    # Inputs of the two norms and, as products keep them, of the two blocks, and two dropout masks of one byte.
    replicated = tokens * hidden * (2 * element + layer.masks) - (-2 * tokens * hidden * kept // KEPT_BLOCK)
    # Queries, keys, values, attention output, and the feed-forward part before its function; as products keep them, the
    # same after it and, if that is another copy, the attention output.
    widths = 2 * layer.query_hidden + 2 * layer.kv_hidden + (2 if layer.gated_mlp else 1) * layer.ffn
    inputs = layer.ffn + (layer.query_hidden if kept != plain else 0)
    split = tokens * element * widths - (-tokens * inputs * kept // KEPT_BLOCK)
    if recompute == "none" and not fused:
        split += (2 * element + 1) * layer.heads * layer.window * tokens
    return replicated, split


OPTIMIZER_TRAFFIC_BYTES = 30
"""Bytes that Adam moves per parameter: gradient and three fp32 states read, states and weights written."""

NOTHING = Kept(0, 0, 0)


class _Priced(NamedTuple):
    """A device with its rates and the coefficients of a pass's terms."""

    device: DeviceSpec
    rates: Rates
    coefficients: Floats
    recorded: bool = False


def analytic_costs(
    model: ModelSpec,
    devices: Iterable[DeviceSpec],
    *,
    precision: Precision,
    tensor_degrees: Iterable[int],
    micro_batches: Iterable[int],
    context_degrees: Iterable[int] = (1,),
    expert_degrees: Iterable[int] = (),
    operators: Mapping[str, Operators] | None = None,
    recompute_modules: Collection[Module] = (),
    offload_modules: Collection[OffloadModule] = (),
    dispatch: DispatchSpec = USUAL_DISPATCH,
    fused_attention: bool = True,
    selective_products: bool = False,
    fp8_inputs: bool = False,
    fused_loss: LossKind = "none",
    calibration: Calibration | None = None,
) -> CostTable:
    """
    Cost table of a model from what its devices make of the work, by layer kind, degrees, micro-batch and recompute.

    A degree that does not divide a sequence, a layer or its experts prices no rows of it. A device without
    ``operators`` runs at its stated efficiencies. A ``calibration`` knows better than ``fused_attention``,
    ``selective_products``, ``fp8_inputs`` and ``fused_loss`` (``taut.data.analytic.device_rates``). Without named
    modules, selective recompute is of the attention core, or what the stack does. ``DataError`` if a device states no
    peak rate for the precision.
    """
    devices, degrees, batches = list(devices), sorted(set(tensor_degrees)), sorted(set(micro_batches))
    for device in devices:
        if device.peak_flops(precision) is None:
            known = ", ".join(device.peak_tflops)
            raise DataError(f"device {device.name}: no peak rate for precision {precision}, expected one of {known}")
    given: dict[str, Any] = {"fused_attention": fused_attention, "selective_products": selective_products}
    given |= {"fp8_inputs": fp8_inputs, "fused_loss": fused_loss}
    models = {device.name: (operators or {}).get(device.name) for device in devices}
    priced = [_priced(device, precision, models[device.name], given, calibration, dispatch) for device in devices]
    if calibration is not None and set(RECORDING) & {*calibration.features}:
        priced += [one._replace(recorded=True) for one in priced]
    shares = [(tp, batch, cp) for cp in sorted(set(context_degrees)) for tp in degrees for batch in batches]
    apart = sorted(set(expert_degrees) - {1})
    modules = tuple(recompute_modules), tuple(offload_modules)
    rows = [row for one in priced for share in shares for row in _rows(model, one, *share, apart, *modules)]
    chosen = {device.name: _calibrated(device, calibration) for device in devices}
    optimizer = {
        device.name: chosen[device.name]["optimizer"] * OPTIMIZER_TRAFFIC_BYTES / device.memory_bandwidth
        for device in devices
    }
    basis = _stated(devices, models, precision) if calibration is None else _fitted(calibration)
    of: dict[str, Any] = {"recompute_modules": [*recompute_modules], "offload_modules": [*offload_modules]}
    return CostTable(name=f"analytic-{precision}", basis=basis, rows=rows, optimizer_s_per_parameter=optimizer, **of)


def _calibrated(device: DeviceSpec, calibration: Calibration | None) -> Calibration:
    return uncalibrated(device) if calibration is None else calibration.on(device.name)


def _priced(
    device: DeviceSpec,
    precision: Precision,
    operators: Operators | None,
    given: Mapping[str, Any],
    calibration: Calibration | None,
    dispatch: DispatchSpec,
) -> _Priced:
    chosen = _calibrated(device, calibration)
    rates = rates_of(
        device,
        precision,
        operators,
        imbalance=dispatch.imbalance,
        row_moves=dispatch.row_moves,
        summed=dispatch.score_bytes(ELEMENT_BYTES[precision]) if dispatch.gathers else 0,
        **chosen.of_runs,
        **(given if calibration is None else chosen.kept),
    )
    fastest = None if rates.fastest is None else _remembering(rates.fastest)
    return _Priced(device, replace(_remembering(rates), fastest=fastest), np.array([chosen[kind] for kind in KINDS]))


def _remembering(rates: Rates) -> Rates:
    return replace(rates, operators=Remembered(rates.operators))


def _fitted(calibration: Calibration) -> str:
    others = (f"computation on {name} as in {one.name}, {one.source}" for name, one in calibration.computation.items())
    return "; ".join((f"calibration {calibration.name}, {calibration.source}", *others))


def _stated(devices: list[DeviceSpec], models: Mapping[str, Operators | None], precision: Precision) -> str:
    said = (_said(device, models[device.name], precision) for device in devices)
    return "analytic, not measured; " + "; ".join(said)


def _said(device: DeviceSpec, model: Operators | None, precision: Precision) -> str:
    """What a device's seconds rest on: fitted with which errors, carried over from another fit, or stated shares."""
    beside = f"memory {device.memory_efficiency:g} of peak, launch {device.launch_us:g} us"
    if not isinstance(model, OperatorModel):
        return (
            f"{device.name}: gemm {device.gemm_efficiency:g} and attention {device.attention_efficiency:g} "
            f"of peak, {beside} (no operator model was fitted)"
        )
    recipe = model.recipes.get(precision)
    trained = model.training
    products = (trained if precision in HALF else None) or recipe or model
    cores = trained if trained is not None and trained.attention else model
    errors = ", ".join(
        f"{name} off by {100 * error.mean:.1f}%"
        for name, error in (("products", products.gemm_error), ("attention", cores.attention_error))
        if error is not None
    )
    assumed = products.assumed if products is not model else ""
    if not recipe and precision not in HALF:
        assumed = f"carried from half precision to {precision} unfitted"
    said = ", ".join(part for part in (errors and f"{errors} on unseen shapes", assumed) if part)
    return f"{device.name}: operator model" + (f" ({said})" if said else "") + f", {beside}"


def layer_shape(layer: LayerSpec, tp: int, batch: int, cp: int = 1) -> LayerShape:
    """Sizes of one tensor rank's share of a layer for one micro-batch, of whose tokens it has 1/cp."""
    return LayerShape.of(
        batch=batch,
        seq=layer.seq / cp,
        window=layer.window,
        hidden=layer.hidden,
        heads=layer.heads / tp,
        kv_heads=layer.key_value_heads / min(tp, layer.key_value_heads),
        head_dim=layer.core_dim,
        ffn=layer.used_ffn / tp,
        up=2 if layer.gated_mlp else 1,
    )


def _rows(
    model: ModelSpec,
    priced: _Priced,
    tp: int,
    batch: int,
    cp: int,
    expert_degrees: list[int],
    modules: tuple[Module, ...],
    away: tuple[OffloadModule, ...],
) -> Iterator[CostRow]:
    element, device, recorded = priced.rates.element, priced.device.name, priced.recorded
    rates = recorded_by(priced.rates, tp * cp) if recorded else priced.rates
    even = replace(rates, imbalance=1.0)
    for layer in model.kinds.values():
        if not layer.splits(tp) or layer.seq % cp:
            continue
        shape = layer_shape(layer, tp, batch, cp)
        tokens = batch * layer.seq // cp
        for ranks in _ranks_of_experts(layer, tp, expert_degrees):
            own = rates if ranks.ep > 1 else even
            terms = pass_terms(layer, shape, tp, own, ranks, modules)
            quickest = None
            if own.fastest is not None:
                quickest = pass_terms(layer, shape, tp, replace(own.fastest, imbalance=own.imbalance), ranks, modules)
            for recompute in RECOMPUTE[:2] if recorded else RECOMPUTE:
                kept = kept_of(layer, recompute, tokens, own, ranks.share(tp), modules, exchanged=ranks.ep > 1)
                moved = offloaded(layer, away, recompute, modules, tokens, own, ranks.share(tp))
                key = Key(device, layer.kind, tp, batch, layer.seq, recompute, cp, *ranks, recorded)
                floors = None if quickest is None else quickest.under(recompute)
                yield _row(priced, key, terms.under(recompute), floors, kept, moved)
    first, last = model.blocks[0], model.blocks[-1]
    if model.vocab and first.seq % cp == last.seq % cp == 0:
        tokens = batch * first.seq // cp
        fast = rates.fastest
        copy = embedding_passes(tokens, first.hidden, rates)
        least = None if fast is None else embedding_passes(tokens, first.hidden, fast)
        key = Key(device, EMBEDDING, tp, batch, first.seq, "none", cp, recorded=recorded)
        yield _row(priced, key, copy, least, Kept(tokens * first.hidden, 0, 0))
        tokens, words = batch * last.seq // cp, model.padded_vocab(tp) // tp
        head = head_passes(tokens, last.hidden, words, rates)
        least = None if fast is None else head_passes(tokens, last.hidden, words, fast)
        held = Kept(2 * element * tokens * last.hidden, rates.logit_bytes * tokens * model.padded_vocab(tp), 0)
        yield _row(priced, key._replace(kind=HEAD, seq=last.seq), head, least, held)
    if (encoder := model.encoder) and encoder.splits(tp):
        images = encoder_passes(encoder, tp, batch, even)
        least = None if rates.fastest is None else encoder_passes(encoder, tp, batch, rates.fastest)
        key = Key(device, ENCODER, tp, batch, encoder.patches, "none", cp, recorded=recorded)
        yield _row(priced, key, images, least, encoder_kept(encoder, tp, batch, element))


def _ranks_of_experts(layer: LayerSpec, tp: int, expert_degrees: list[int]) -> Iterator[ExpertRanks]:
    """How a layer's experts may be split over ranks."""
    yield TOGETHER
    if layer.experts is not None:
        suited = [ep for ep in expert_degrees if layer.experts.num_experts % ep == 0]
        yield from (ExpertRanks(ep, etp) for ep in suited for etp in sorted({1, tp}))


class LayerTerms(NamedTuple):
    """Terms of a layer's passes without recompute, and the forward terms that selective and full recompute repeat."""

    plain: Passes
    again: Floats
    whole: Floats

    def under(self, recompute: str) -> Passes:
        """The passes under a kind of recompute."""
        return recomputed(self.plain, recompute, self.again, self.whole)


def pass_terms(
    layer: LayerSpec, shape: LayerShape, tp: int, rates: Rates, ranks: ExpertRanks, modules: tuple[Module, ...]
) -> LayerTerms:
    """Terms of a layer's passes, and of the forward work that recompute repeats."""
    if layer.beside:
        batch, cp = int(shape.batch), round(layer.seq / float(shape.seq))
        each = [
            pass_terms(part, layer_shape(part, tp, batch, cp), tp, rates, ranks if part.experts else TOGETHER, modules)
            for part in layer.together
        ]
        plain = Passes(*(np.asarray(sum(terms)) for terms in zip(*(part.plain for part in each), strict=True)))
        again, whole = sum(part.again for part in each), sum(part.whole for part in each)
        return LayerTerms(plain, np.asarray(again), np.asarray(whole))
    plain = block_passes(shape, rates) if is_plain(layer) else routed_passes(layer, shape, tp, rates, ranks)
    whole = plain.forward if layer.experts else whole_terms(plain, shape, rates)
    if modules:
        return LayerTerms(plain, recomputed_terms(layer, shape, tp, rates, plain.forward, modules, ranks), whole)
    return LayerTerms(plain, plain.forward * selective_shares(shape, rates), whole)


def _row(
    priced: _Priced, key: Key, passes: Passes, fastest: Passes | None, kept: Kept, moved: Kept = NOTHING
) -> CostRow:
    """A row from the terms of its passes, as priced and by the fastest kernels."""
    seconds = [float(terms @ priced.coefficients) for terms in passes]
    if fastest is not None:
        seconds = [max(priced_s, float(floor)) for priced_s, floor in zip(seconds, floors_of(fastest), strict=True)]
    forward, input_grad, weight_grad = seconds
    without, with_sp = _on_a_rank(kept, key.tp)
    away, away_sp = _on_a_rank(moved, key.tp)
    return CostRow.model_validate(
        {
            **key._asdict(),
            "forward_s": forward,
            "input_grad_s": input_grad,
            "weight_grad_s": weight_grad,
            "activation_bytes": without,
            "activation_bytes_sp": with_sp,
            "offload_bytes": min(away, without),
            "offload_bytes_sp": min(away_sp, with_sp),
        }
    )


def _on_a_rank(bytes_: Kept, tp: int) -> tuple[int, int]:
    """Bytes of a tensor rank, without and with sequence parallelism."""
    replicated, split, whole = bytes_
    found = whole + replicated + -(-split // tp), whole + -(-(replicated + split) // tp)
    return min(found[0], MOST_BYTES), min(found[1], MOST_BYTES)


TWO_WAYS = 2.0
"""Seconds of a core without a causal mask over those of one with it, (4)."""


class _Part(NamedTuple):
    """Passes of the layers or the projectors, and how often they run in a micro-batch."""

    passes: Passes
    times: int


def encoder_passes(encoder: EncoderSpec, tp: int, samples: int, rates: Rates) -> Passes:
    """Terms of the passes of all images of a micro-batch of so many samples, (4) and (5)."""
    t, patches = encoder.ranks(tp), np.asarray(samples * encoder.images * encoder.patches)
    layers = [_Part(_layer(encoder, t, patches, encoder.patches, rates), encoder.full_layers)]
    window = min(encoder.window or encoder.patches, encoder.patches)
    layers.append(_Part(_layer(encoder, t, patches, window, rates), encoder.layers - encoder.full_layers))
    core = LayerShape.of(**dict.fromkeys(LayerShape._fields, 1.0))
    made = [Product(patches, np.asarray(encoder.hidden), np.asarray(encoder.patch_dim))]
    moved = rates.element * patches * (encoder.patch_dim + encoder.hidden)
    embedding = _Part(passes_of(core, rates, made, moved, has_core=False), 1)
    projector = _Part(_projector(encoder, t, patches / encoder.merge, rates), encoder.projectors)
    forward = sum(part.times * part.passes.forward for part in (*layers, embedding, projector))
    none = 0.0 * projector.passes.forward
    by_input = by_weights = none
    if encoder.trained == "all":
        by_input = sum((part.times * part.passes.input_grad for part in (*layers, projector)), none)
        by_input = by_input + encoder.recompute * sum(part.times * part.passes.forward for part in layers)
        by_weights = sum((part.times * part.passes.weight_grad for part in (*layers, embedding, projector)), none)
    elif encoder.trained == "projector":
        if len(encoder.projector) > 1:
            by_input = encoder.projectors * _projector(encoder, t, patches / encoder.merge, rates, 1).input_grad
        by_weights = encoder.projectors * projector.passes.weight_grad
    return Passes(np.asarray(forward), np.asarray(by_input), np.asarray(by_weights))


def _layer(encoder: EncoderSpec, t: int, patches: Floats, reach: int, rates: Rates) -> Passes:
    """Terms of a layer whose patches attend to so many, (4)."""
    heads, ffn, hidden, up = encoder.heads / t, encoder.ffn_hidden / t, encoder.hidden, 2 if encoder.gated_mlp else 1
    width = hidden / t
    shape = LayerShape.of(
        batch=patches / reach,
        seq=reach,
        window=reach,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // encoder.heads,
        ffn=ffn,
        up=up,
    )
    columns = (3 * width, hidden), (hidden, width), (up * ffn, hidden), (hidden, ffn)
    products = [Product(patches, np.asarray(made), np.asarray(sums)) for made, sums in columns]
    moved = rates.element * patches * (10.0 * hidden + 4.0 * ffn)
    return passes_of(shape, rates, products, moved, cores=TWO_WAYS)


def _projector(encoder: EncoderSpec, t: int, rows: Floats, rates: Rates, first: int = 0) -> Passes:
    """Terms of one projector from its product ``first`` on, whose first and last product tensor ranks share."""
    shape = LayerShape.of(**dict.fromkeys(LayerShape._fields, 1.0))
    last, products, moved = len(encoder.projector) - 1, [], 0.0 * rows
    for number, (sums, columns) in enumerate(encoder.projector):
        if number >= first:
            split_sums, split_columns = (t if 0 < number == last else 1), (t if number == 0 else 1)
            products.append(Product(rows, np.asarray(columns / split_columns), np.asarray(sums / split_sums)))
            moved = moved + 2.0 * rates.element * rows * columns / split_columns
    return passes_of(shape, rates, products, moved, has_core=False)


def encoder_kept(encoder: EncoderSpec, tp: int, samples: int, element: int) -> Kept:
    """Bytes that an encoder keeps of a micro-batch; sequence parallelism shares none of them."""
    of_layer = encoder.kept(samples, element, recompute=encoder.recompute) if encoder.trained == "all" else (0, 0)
    replicated, split = (encoder.layers * bytes_ for bytes_ in of_layer)
    whole = encoder.kept_at_edges(samples, element) + replicated
    return Kept(0, split, whole) if encoder.ranks(tp) > 1 else Kept(0, 0, whole + split)
