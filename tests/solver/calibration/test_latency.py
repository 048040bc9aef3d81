"""Fitting coefficients: exact data is recovered, odd runs do not set the rest, errors are of unseen runs."""

import numpy as np
import pytest

from benchmarks.accuracy import on_many_nodes, speaks_for
from taut.data.calibration import TERMS, Calibration, uncalibrated
from taut.data.catalog.devices import catalog_devices
from taut.errors import FormulationError
from taut.solver.calibration.latency import (
    FLOORS,
    Samples,
    Stack,
    cross_validate,
    drawn,
    fit_calibration,
    fit_coefficients,
)

DEVICE = catalog_devices()["a100-80gb"]
FAST, SLOW = Stack(100.0, True), Stack(800.0, False)
GATHER = TERMS.index("gather")
STATED = np.array([uncalibrated(DEVICE)[term] for term in TERMS])


def fixed(terms: np.ndarray, seconds: np.ndarray) -> Samples:
    """Samples that wait for the same whatever the coefficients."""
    return Samples(lambda coefficients: terms, seconds)


def samples(seed: int, noise: float, count: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random terms, the coefficients behind them, and seconds with relative noise."""
    rng = np.random.default_rng(seed)
    scale = np.where(STATED > 0, STATED, 1e-2)
    true = scale * rng.uniform(0.7, 1.5, len(TERMS))
    terms = rng.lognormal(0, 1, (count, len(TERMS))) / scale
    return terms, true, terms @ true * np.exp(rng.normal(0, noise, count))


def test_exact_samples_are_reproduced() -> None:
    """Without noise the fit predicts every sample to one per cent, which is what the pull costs."""
    terms, _, seconds = samples(0, 0.0)
    assert terms @ fit_coefficients(fixed(terms, seconds), STATED) == pytest.approx(seconds, rel=1e-2)


def test_a_hidden_term_has_the_coefficient_that_it_is_pulled_to() -> None:
    """Of runs whose gathers take a thousandth of a step the fit finds these at 1.25 of the links, the rest as ever."""
    terms, true, _ = samples(2, 0.0)
    terms[:, GATHER] *= 1e-3
    seconds = terms @ true
    found = fit_coefficients(*drawn(fixed(terms, seconds), DEVICE, towards={"gather": 1.25}))
    free = fit_coefficients(*drawn(fixed(terms, seconds), DEVICE))
    assert found[GATHER] == pytest.approx(1.25, rel=0.02)
    assert np.delete(found, GATHER) == pytest.approx(np.delete(free, GATHER), rel=0.02)


@pytest.mark.parametrize(
    ("term", "floor"),
    [
        *((one, 1 / 8) for one in ("tensor_parallel", "pipeline", "data_parallel", "gather")),
        ("optimizer", 1.0),
        ("memory", 0.0),
    ],
)
def test_coefficients_stop_at_their_floors(term: str, floor: float) -> None:
    """A term that measurements contradict gets its floor: an eighth or all of its cost, or none."""
    terms, true, _ = samples(1, 0.0)
    true[TERMS.index(term)] = -0.2
    seconds = np.maximum(terms @ true, 0.1)
    found = fit_coefficients(fixed(terms, seconds), STATED)
    assert (found >= FLOORS).all()
    assert found[TERMS.index(term)] == pytest.approx(floor)


def test_terms_are_those_of_what_is_waited_for() -> None:
    """Where a run waits for the larger of two terms, the fit finds the coefficients behind both kinds of run."""
    rng = np.random.default_rng(3)
    base, either = rng.lognormal(0, 1, (300, len(TERMS))), rng.lognormal(0, 1, (300, 2))
    base[:, [4, 6]] = 0.0
    true = np.where(np.array(TERMS) == "data_parallel", 2.0, np.maximum(STATED, 0.1))

    def terms(coefficients: np.ndarray) -> np.ndarray:
        found = base.copy()
        waits = either * coefficients[[4, 6]]
        found[:, 4], found[:, 6] = np.where(waits.argmax(axis=1) == [[0], [1]], either.T, 0.0)
        return found

    seconds = terms(true) @ true
    found = fit_coefficients(Samples(terms, seconds), STATED)
    assert np.abs(terms(found) @ found / seconds - 1).mean() < 0.01
    assert found[6] == pytest.approx(2.0, rel=0.1)


def test_a_few_odd_runs_do_not_set_the_rest() -> None:
    """With one run in twenty three times too slow, the median error of the others stays below 2 %."""
    terms, true, seconds = samples(2, 0.0)
    seconds[::20] *= 3
    found = terms @ fit_coefficients(fixed(terms, seconds), STATED)
    honest = np.ones(len(seconds), dtype=bool)
    honest[::20] = False
    assert np.median(np.abs(found / (terms @ true) - 1)[honest]) < 0.02


def test_terms_that_samples_cannot_tell_apart_follow_the_device() -> None:
    """Where a term is absent from all samples its coefficient is the stated one."""
    terms, _, seconds = samples(3, 0.0)
    terms[:, 5] = 0.0
    assert fit_coefficients(fixed(terms, seconds), STATED)[5] == pytest.approx(STATED[5])


def test_cross_validation_sees_the_noise() -> None:
    """Errors on unseen runs are about the noise, and the band of a calibration holds about 80 %."""
    terms, true, seconds = samples(4, 0.1, 400)
    errors = cross_validate(fixed(terms, seconds), STATED)
    assert 0.06 < np.abs(errors).mean() < 0.12
    calibration = fit_calibration({FAST: fixed(terms, seconds)}, DEVICE, {"name": "c"})
    fresh = np.random.default_rng(9).normal(0, 0.1, 400)
    predicted = terms @ np.array([calibration[term] for term in TERMS])
    low, high = np.array([calibration.band(value) for value in predicted]).T
    measured = terms @ true * np.exp(fresh)
    assert 0.72 < ((low <= measured) & (measured <= high)).mean() < 0.88


def test_a_band_is_that_of_unseen_plans() -> None:
    """Runs of one plan share what the fit cannot know of it, and folds of runs have seen it in the others."""
    terms, true, seconds = samples(5, 0.0, 20)
    terms, plans = np.repeat(terms, 20, axis=0), np.repeat(np.arange(20), 20)
    rng = np.random.default_rng(6)
    seconds = terms @ true * np.exp(rng.normal(0, 0.1, 20))[plans] * np.exp(rng.normal(0, 0.01, 400))
    runs = fixed(terms, seconds)._replace(plans=plans)
    of_runs, of_plans = (np.abs(cross_validate(runs, STATED, plans=given)).mean() for given in (False, True))
    assert of_plans > 1.2 * of_runs
    assert fit_calibration({FAST: runs}, DEVICE, {"name": "c"}).mape == pytest.approx(of_plans)
    # Fewer plans than a fit takes runs are not left out.
    few = runs._replace(plans=plans % 3)
    assert np.array_equal(cross_validate(few, STATED, plans=True), cross_validate(few, STATED))


def test_a_fit_in_a_narrower_format_leans_on_the_stacks_own() -> None:
    """A term that the samples lack keeps the coefficient of the stack's other fit, whose launches are taken too."""
    terms, _, seconds = samples(10, 0.01)
    terms[:, 5] = 0.0
    coefficients = dict.fromkeys(TERMS, 0.7)
    like = Calibration(name="c", precision="bf16", samples=20, coefficients=coefficients, **SLOW._asdict())
    runs = fixed(terms, seconds)
    found = fit_calibration({FAST: runs, SLOW: runs}, DEVICE, {"name": "c", "precision": "fp8"}, like=like)
    assert (found.launch_us, found.fused_attention) == SLOW
    assert found["pipeline"] == pytest.approx(0.7)
    assert speaks_for(like)
    assert not speaks_for(like.model_copy(update={"samples": 19})) and not speaks_for(found)


def test_a_fit_says_nothing_of_gathers_that_no_run_has() -> None:
    """Runs without shards leave the coefficient of gathers to that of gradient rings."""
    terms, _, seconds = samples(12, 0.01)
    assert "gather" in fit_calibration({FAST: fixed(terms, seconds)}, DEVICE, {"name": "c"}).coefficients
    terms[:, TERMS.index("gather")] = 0.0
    found = fit_calibration({FAST: fixed(terms, seconds)}, DEVICE, {"name": "c"})
    assert "gather" not in found.coefficients
    assert found["gather"] == max(1.0, found["data_parallel"])


def test_a_fit_on_many_nodes_leans_on_the_stacks_own_on_one() -> None:
    """Products and attention as on one node, launches of as many seconds for a pass without work, the rest stated."""
    one = Calibration(name="c", coefficients=dict.fromkeys(TERMS, 4.0), nodes="one", launch_us=250.0)
    like = on_many_nodes(one, DEVICE)
    own = {"gemm": 4.0, "attention": 4.0, "launch": 1.0}
    stated = dict(zip(TERMS, STATED, strict=True))
    assert {term: like[term] for term in TERMS} == {**stated, **own}
    assert (like.launch_us, like.nodes) == (1000.0, "many")


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_samples_are_refused(count: int) -> None:
    """Cross-validation needs at least four samples."""
    terms, _, seconds = samples(5, 0.0)
    with pytest.raises(FormulationError, match=f"{count} samples, expected at least 4"):
        fit_calibration({FAST: fixed(terms[:count], seconds[:count])}, DEVICE, {"name": "c"})


def test_few_samples_give_the_widest_band_they_can() -> None:
    """With eight samples the ends of the band are their smallest and largest error on unseen runs."""
    terms, _, seconds = samples(6, 0.1, 8)
    calibration = fit_calibration({FAST: fixed(terms, seconds)}, DEVICE, {"name": "c"})
    errors = cross_validate(fixed(terms, seconds), STATED)
    assert calibration.residuals["0.1"] == pytest.approx(errors.min())
    assert calibration.residuals["0.9"] == pytest.approx(errors.max())


@pytest.mark.parametrize(("count", "chosen"), [(100, SLOW), (19, FAST)])
def test_the_stack_is_chosen_where_samples_suffice(count: int, chosen: Stack) -> None:
    """A hundred samples made with slow launches tell the stack; nineteen leave the first one."""
    terms, _, seconds = samples(7, 0.01, count)
    other = terms * np.random.default_rng(8).lognormal(0, 1, terms.shape)
    found = fit_calibration({FAST: fixed(other, seconds), SLOW: fixed(terms, seconds)}, DEVICE, {"name": "c"})
    assert (found.launch_us, found.fused_attention) == chosen


def test_equally_good_stacks_leave_the_first() -> None:
    """Where the stacks predict alike the first one is taken, not one that wins by chance."""
    terms, _, seconds = samples(9, 0.05, 100)
    found = fit_calibration({FAST: fixed(terms, seconds), SLOW: fixed(terms * 1.0001, seconds)}, DEVICE, {"name": "c"})
    assert found.launch_us == FAST.launch_us
