r"""
The latency models: which terms of a step count, and in which form.

Sets: stages x, replicas z. Data: m micro-batches, p stages; the end of a pipeline :math:`T_{pipe}[z]`, the end of a
stage's last pass :math:`end[x, z]`, the reduction of its gradients :math:`R_x`, the optimizer :math:`T_{opt}[x]`
(``taut.formulations.latency`` (3) and (4), ``taut.formulations.gradient_reductions``).

(1) A step waits for the reductions of every stage after the stage's own end, and for a tied embedding,

    .. math:: T = \max \big( \max_x (\max_z end[x, z] + R_x), \; \max(end \text{ of the holders}) + R_{tied} \big)
        + \max_x T_{opt}[x];

    or for stage 0 alone, :math:`T = \max_z T_{pipe}[z] + R_0 + T_{opt}[0]`; or for the slowest stage, each of which has
    one flat ring, :math:`T = \max_z T_{pipe}[z] + \max_x R_x`.
(2) :math:`T_{pipe}[z]` has h trips through the pipeline, whose hops are priced there and back or there alone. 1F1B
    pays :math:`h = \max(1, m / p)`, as Pipette prints it :math:`h = (p - 1) m / p`, and in AMP h = 1. GPipe pays one
    trip under every model.
(3) Gathers and scatters of ZeRO-2 and 3 run during the passes (``taut.formulations.sharding`` (2)), or all after them.
(4) A ring between nodes has the cards of all its members on a node, or every member an equal share of the node's cards
    (``taut.formulations.rings`` (3)).

===================  =======================  ===========  =======================  ========================
..                   ``step``                 ``pipette``  ``pipette-printed``      ``amp``
===================  =======================  ===========  =======================  ========================
waited for, (1)      every stage              stage 0      stage 0                  the slowest stage's ring
rings                hierarchical             as ``step``  as ``step``              flat
trips, (2)           max(1, m / p)            as ``step``  (p - 1) m / p            1
hops, (2)            there and back           as ``step``  as ``step``              there
gathers, (3)         during the passes        after them   after them               after them
cards, (4)           of all members           equal share  equal share              equal share
optimizer            yes                      yes          no                       no
schedules            all                      all          1f1b, gpipe              1f1b, gpipe
other mechanisms     all                      none         none                     none
===================  =======================  ===========  =======================  ========================

Plans under ``simulated`` are found at the prices of ``step`` and ranked by their simulated time.

References
----------
Yim et al. (2024), Pipette, eqs. 3-6. Li et al. (2022), AMP, eqs. 3-5.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from taut.errors import FieldError

LatencyName = Literal["step", "pipette", "pipette-printed", "amp"]
SIMULATED: Literal["simulated"] = "simulated"
"""The name under which plans are ranked by simulation."""
ALL_STAGES, SLOWEST_RING, FIRST_STAGE = 0, 1, 2
"""What is waited for, (1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """
    What a latency model prices.

    ``waits``: ``ALL_STAGES``, ``SLOWEST_RING`` or ``FIRST_STAGE`` of (1); ``trips`` of 1F1B by (m, p), (2);
    ``both_ways``: whether hops are priced there and back, (2); ``prices_orders``, whether every schedule and the
    optimizer are priced; ``prices_mechanisms``, whether context and expert ranks, copies, uneven batches, overlap and
    hosts' memory are priced, which frameworks have and the papers' models do not know, with (3) and (4).
    """

    name: LatencyName
    waits: int
    trips: Callable[[int, int], float]
    both_ways: bool = True
    prices_orders: bool = False
    prices_mechanisms: bool = False

    def __post_init__(self) -> None:
        """Makespans and bounds of orders take half of a hop there and back for every transfer."""
        assert self.both_ways or not (self.prices_orders or self.waits_for_every_stage)

    @property
    def waits_for_every_stage(self) -> bool:
        """Whether reductions of all stages, of a tied embedding, and the largest optimizer are waited for, (1)."""
        return self.waits == ALL_STAGES

    @property
    def waits_for_first_stage(self) -> bool:
        """Whether stage 0's reduction alone is waited for, (1)."""
        return self.waits == FIRST_STAGE

    @property
    def rings_are_flat(self) -> bool:
        """Whether gradients are reduced in one flat ring over the slowest link, (1)."""
        return self.waits == SLOWEST_RING

    @property
    def gathers_in_passes(self) -> bool:
        """Whether gathers and scatters of ZeRO-2 and 3 run during the passes, (3)."""
        return self.prices_mechanisms

    @property
    def shares_cards_by_members(self) -> bool:
        """Whether a ring has the cards of all its members on a node, (4)."""
        return self.prices_mechanisms

    @property
    def refusal(self) -> str:
        """Why a mechanism is refused where ``prices_mechanisms`` is false."""
        return f"no part of {self.name}, expected latency model step"

    def check_mechanism(self, words: str) -> None:
        """Refuse a mechanism that the model does not price."""
        if not self.prices_mechanisms:
            self._refuse(words, [each for each in LATENCY_MODELS.values() if each.prices_mechanisms])

    def check_order(self, schedule: str) -> None:
        """Refuse a schedule that is priced by its order where the model does not price that."""
        if not self.prices_orders:
            self._refuse(schedule, [each for each in LATENCY_MODELS.values() if each.prices_orders])

    def _refuse(self, words: str, others: list["LatencyModel"]) -> None:
        expected = " or ".join(each.name for each in others)
        raise FieldError("latency_model", self.name, f"does not price {words}, expected {expected}")


def _clamped(m: int, p: int) -> float:
    return max(1.0, m / p)


def _printed(m: int, p: int) -> float:
    return m / p * (p - 1)


def _once(m: int, p: int) -> float:
    return 1.0


LATENCY_MODELS: Mapping[LatencyName, LatencyModel] = MappingProxyType(
    {
        "step": LatencyModel(name="step", waits=ALL_STAGES, trips=_clamped, prices_orders=True, prices_mechanisms=True),
        "pipette": LatencyModel(name="pipette", waits=FIRST_STAGE, trips=_clamped, prices_orders=True),
        "pipette-printed": LatencyModel(name="pipette-printed", waits=FIRST_STAGE, trips=_printed),
        "amp": LatencyModel(name="amp", waits=SLOWEST_RING, trips=_once, both_ways=False),
    }
)
"""Every latency model by its name."""


def prices_of(name: LatencyName | Literal["simulated"]) -> LatencyModel:
    """The model at whose prices plans are found under a name: that of the name, or ``step`` if they are simulated."""
    return LATENCY_MODELS["step" if name == SIMULATED else name]
