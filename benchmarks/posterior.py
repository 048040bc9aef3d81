r"""
A calibration as a posterior: coefficients of several campaigns together, with what is not known of them.

Sets: campaigns g, their runs i, terms k. Data: measured seconds :math:`y_i`, the step time
:math:`T_i(c) = \sum_k c_k x_{ik}`, whose terms x are slopes at some coefficients (a piecewise linear function of degree
1 is the sum of its slopes). Variables: logarithms :math:`\theta_{gk}` of coefficients.

(1) Prior: :math:`\theta \sim N(\mu, K)`. A coefficient differs from its prior mean :math:`\mu_k` by what all machines
    share (the kernel), by what a generation of devices adds, by what the software v adds, and by what is a campaign's
    own, such as the clock that its devices sustain:

    .. math:: K_{gk,hk} = s_k^2 (w^{kernel} + w^{device} [d_g = d_h] + w^{software} [v_g = v_h] + w^{own} [g = h]),

    with shares w that sum to 1. So a campaign without runs of a term learns it from the others, with its spread.
(2) Data: :math:`\ln y_i = \ln T_i(\theta_g) + \epsilon_i`, :math:`\epsilon_i \sim N(0, \sigma_g^2)` for what differs
    from run to run and what no term says. Runs of one older release of the software have an error in common beside,
    of deviation :math:`\tau`: they say less of the newest release, which the coefficients stand for.
(3) Mode: by Gauss and Newton. The derivative of :math:`\ln T_i` by :math:`\theta_{gk}` is the share of term k in the
    step, :math:`J_{ik} = c_k x_{ik} / T_i`; shares sum to 1. With the residuals :math:`r = \ln y - \ln T(\theta)`

    .. math:: \theta \leftarrow \mu + K J^T (J K J^T + \Sigma)^{-1} (r + J (\theta - \mu)).

    The terms are those at the prior mean, and once more those at the mode that follows: between both hardly a maximum
    changes its winner.

(4) Covariance (Laplace): :math:`C = K - K J^T (J K J^T + \Sigma)^{-1} J K` at the mode.
(5) Noise: :math:`\sigma_g^2 = (\sum_i r_i^2 + \nu \sigma_0^2) / (n_g - p_g + \nu)` with the parameters :math:`p_g` that
    the runs determine, the trace of :math:`J C J^T / \sigma_g^2`. The prior noise :math:`\sigma_0` counts as
    :math:`\nu` runs.
(6) Outliers: a run whose residual is beyond :math:`1.5 \sigma` weighs as much less (Huber 1964).
(7) No coefficient is below its floor: where a step leads there, it stays at the floor.
(8) Prediction: the step of a configuration has the logarithm :math:`\ln T(\theta)`, with the variance
    :math:`J C J^T + \sigma^2`, J its shares.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints

SLOPES, STEPS = 2, 8
"""How often (3) takes terms anew, and its steps with the same ones."""
HUBER = 1.5
OLDER = 0.12
"""Tau of (2): plans that stayed the same gained 0 to 27 %, in the mean 12 %, between releases half a year apart."""
PRIOR_NOISE, COUNTED = 0.06, 4.0
"""Sigma_0 and nu of (5): what one plan differs by from one release of its software to the next."""
KERNEL, DEVICE, SOFTWARE, OWN = 0.4, 0.2, 0.3, 0.1
"""Shares of (1): kernels and their software make more of a difference than the device and its generation."""

TermsAt = Callable[[Floats], Floats]
"""Terms (runs, terms), in seconds at coefficient 1, as they are at coefficients (terms,)."""


class Prior(NamedTuple):
    """Prior of coefficients: means (terms,), deviations of their logarithms (terms,), and floors (terms,)."""

    mean: Floats
    deviation: Floats
    floor: Floats


class CampaignRuns(NamedTuple):
    """
    Runs of a campaign: generation of the device, measured seconds (runs,), and their terms at coefficients.

    ``release`` (runs,) numbers the older releases of the software from 1, and is 0 of the newest. ``software`` is what
    campaigns on several devices have in common.
    """

    device: str
    seconds: Floats
    terms: TermsAt
    release: Ints
    software: str

    def take(self, rows: Ints) -> "CampaignRuns":
        """Some of the runs."""
        terms = self.terms
        return self._replace(
            seconds=self.seconds[rows],
            terms=lambda coefficients: terms(coefficients)[rows],
            release=self.release[rows],
        )


class Posterior(NamedTuple):
    """A campaign's coefficients (terms,), covariance of their logarithms (terms, terms), and noise, (3) to (5)."""

    coefficients: Floats
    covariance: Floats
    noise: float


def fit_posteriors(campaigns: Sequence[CampaignRuns], prior: Prior) -> list[Posterior]:
    """Posterior of every campaign, (1) to (7); campaigns may have no runs."""
    count = len(campaigns)
    theta, noise = np.tile(np.log(prior.mean), (count, 1)), np.full(count, PRIOR_NOISE)
    covariance = posterior = prior_covariance(
        [each.device for each in campaigns], [each.software for each in campaigns], prior
    )
    for _ in range(SLOPES):
        terms = [each.terms(np.exp(own)) for each, own in zip(campaigns, theta, strict=True)]
        theta, posterior, noise = _mode(campaigns, terms, prior, covariance, theta, noise)
    parts = [slice(g * len(prior.mean), (g + 1) * len(prior.mean)) for g in range(count)]
    return [
        Posterior(np.exp(own), posterior[part, part], float(sigma))
        for own, part, sigma in zip(theta, parts, noise, strict=True)
    ]


def _mode(
    campaigns: Sequence[CampaignRuns],
    terms: Sequence[Floats],
    prior: Prior,
    covariance: Floats,
    theta: Floats,
    noise: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Logarithms (campaigns, terms), their covariance and the noise at the mode of given terms, (3) to (7)."""
    which = np.repeat(np.arange(len(campaigns)), [len(each.seconds) for each in campaigns])
    measured = np.log(np.concatenate([each.seconds for each in campaigns]))
    release = np.concatenate([each.release for each in campaigns])
    older = (release[:, None] == release) & (which[:, None] == which) & (release > 0)
    mean, floor = np.tile(np.log(prior.mean), len(campaigns)), np.log(prior.floor)
    for _ in range(STEPS):
        predicted, jacobian = _shares(terms, theta)
        residual = measured - predicted
        weight = np.minimum(1.0, HUBER * noise[which] / np.maximum(np.abs(residual), 1e-9))
        crossed = covariance @ jacobian.T
        within = jacobian @ crossed + np.diag(noise[which] ** 2 / weight) + OLDER**2 * older
        gain = np.linalg.solve(within, crossed.T).T
        found = mean + gain @ (residual + jacobian @ (theta.ravel() - mean))
        theta, posterior = np.maximum(found.reshape(theta.shape), floor), covariance - gain @ crossed.T
        noise = _noise(_apart(residual, older), jacobian @ posterior @ jacobian.T, which, noise, weight)
    return theta, posterior, noise


def prior_covariance(devices: Sequence[str], software: Sequence[str], prior: Prior) -> Floats:
    """K of (1), (campaigns x terms, campaigns x terms)."""
    alike, same = (np.array(names)[:, None] == np.array(names) for names in (devices, software))
    between = KERNEL + DEVICE * alike + SOFTWARE * same + OWN * np.eye(len(devices))
    return np.asarray(np.kron(between, np.diag(prior.deviation**2)))


def _shares(terms: Sequence[Floats], theta: Floats) -> tuple[Floats, Floats]:
    """Logarithms of predicted seconds (runs,), and shares (runs, campaigns x terms) of the terms in them, (3)."""
    seconds, rows = [], []
    for g, (own, each) in enumerate(zip(theta, terms, strict=True)):
        parts = each * np.exp(own)
        seconds.append(parts.sum(axis=1))
        placed = np.zeros((len(parts), *theta.shape))
        placed[:, g] = parts / seconds[-1][:, None]
        rows.append(placed.reshape(len(parts), theta.size))
    return np.log(np.concatenate(seconds)), np.vstack(rows)


def _apart(residual: Floats, older: Flags) -> Floats:
    """Residuals less what the runs of one older release have in common, as far as tau explains it, (2)."""
    count = older.sum(axis=1)
    common = older @ residual / np.maximum(count, 1) * (count / (count + (PRIOR_NOISE / OLDER) ** 2))
    return np.asarray(residual - common)


def _noise(residual: Floats, explained: Floats, which: Ints, noise: Floats, weight: Floats) -> Floats:
    """Noise of every campaign, (5)."""
    found = noise.copy()
    for g in range(len(noise)):
        mine = which == g
        determined = (np.diag(explained)[mine] * weight[mine]).sum() / noise[g] ** 2
        squares = (weight[mine] * residual[mine] ** 2).sum()
        found[g] = np.sqrt((squares + COUNTED * PRIOR_NOISE**2) / max(mine.sum() - determined + COUNTED, 1.0))
    return found


def spread_of(shares: Floats, posterior: Posterior) -> Floats:
    """Standard deviation of the logarithm of steps with these shares (runs, terms), (8)."""
    return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", shares, posterior.covariance, shares) + posterior.noise**2))
