"""Laws of run time over size, fitted to log times: log t = log(exp(row · θ) + exp(γ)).

``exp(row · θ)`` is a power law in the numeric inputs, ``exp(γ)`` an overhead that every run pays. All laws
of a batch are fitted at once by a damped Gauss-Newton iteration with priors (ridge) and Student weights,
which keep one disturbed run from bending a law. After that each law is a linear Gaussian model about its
optimum: predictions, their variances and exact leave-one-out residuals follow in closed form.
"""

from __future__ import annotations

from dovetail.files.arrays import Floats, np
from dovetail.records import dataclass

NO_OVERHEAD = -1e3
"""γ of a law without an overhead: exp(γ) is 0."""
MISFIT = 0.15
"""Standard deviation of log time by which a law may miss before a point counts as an outlier."""
FREEDOM = 4.0
"""Degrees of freedom of the Student weights."""
ROUNDS = 14


@dataclass(frozen=True, slots=True)
class Law:
    """One form of law: its columns, priors, whether it has an overhead, and the parameters found.

    ``rows`` (n, q) is the design, ``mean`` and ``spread`` (q + 1) the priors of θ and γ. ``theta`` (q + 1)
    is filled by `fit_laws`. ``log_size``: the one numeric column is log(n log n), not log n.
    """

    name: str
    rows: Floats
    mean: Floats
    spread: Floats
    theta: Floats
    log_size: bool = False

    @property
    def has_overhead(self) -> bool:
        """Whether the law has a constant term."""
        return bool(self.mean[-1] > NO_OVERHEAD / 2)

    @property
    def is_correctable(self) -> bool:
        """Whether a local correction is tried on top: laws with a fixed exponent are near a free one."""
        return self.name in ("power law", "power law with overhead", "straight line")

    def at(self, rows: Floats) -> tuple[Floats, Floats]:
        """Log times (m,) and their Jacobian (m, q + 1) at rows (m, q)."""
        values, jacobian = _evaluate_laws(rows[None], self.theta[None])
        return values[0], jacobian[0]


def _evaluate_laws(rows: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Values (B, n) and Jacobians (B, n, q + 1) of a batch of laws."""
    power = np.einsum("bnq,bq->bn", rows, theta[:, :-1])
    gamma = theta[:, -1:]
    # log(exp a + exp b) without overflow: times span many orders of magnitude.
    values = np.logaddexp(power, gamma)
    share = np.exp(np.minimum(power - values, 0.0))  # of the power law in the time
    return values, np.concatenate([rows * share[:, :, None], (1.0 - share)[:, :, None]], axis=2)


def fit_laws(laws: list[Law], y: Floats, variance: Floats) -> tuple[list[Law], Floats]:
    """Fit all laws to log times ``y`` (n,) of the given variances (n,).

    Returns the laws with ``theta``, and their objectives (B,), lower is better. Laws must have equally
    many columns. O(B n q² rounds).
    """
    rows = np.stack([law.rows for law in laws])
    prior = np.stack([law.mean for law in laws])
    precision = np.stack([law.spread for law in laws]) ** -2.0
    theta = np.stack([law.theta for law in laws])
    # MISFIT beside the noise: a law that misses caches by a little must not call each point an outlier.
    scale = 1.0 / (variance + MISFIT**2)
    damping = np.full(len(laws), 1e-3)
    diagonal = np.arange(theta.shape[1])

    def fit_objective(at: Floats) -> tuple[Floats, Floats, Floats]:
        values, jacobian = _evaluate_laws(rows, at)
        residual = y - values
        loss = 0.5 * (FREEDOM + 1) * np.log1p(scale * residual**2 / FREEDOM).sum(axis=1)
        return loss + 0.5 * (precision * (at - prior) ** 2).sum(axis=1), residual, jacobian

    loss, residual, jacobian = fit_objective(theta)
    for _ in range(ROUNDS):
        # Student weights: a far point pulls less the farther it is.
        weight = scale * (FREEDOM + 1) / (FREEDOM + scale * residual**2)
        weighted = jacobian * weight[:, :, None]
        normal = np.einsum("bnq,bnr->bqr", weighted, jacobian)
        normal[:, diagonal, diagonal] += precision
        gradient = np.einsum("bnq,bn->bq", weighted, residual) - precision * (theta - prior)
        # Levenberg's damping, relative to the diagonal: columns have different units.
        normal[:, diagonal, diagonal] *= 1.0 + damping[:, None]
        step = np.linalg.solve(normal, gradient[:, :, None])[:, :, 0]
        new_loss, new_residual, new_jacobian = fit_objective(theta + step)
        better = new_loss <= loss
        gained = float(np.max(np.where(better, loss - new_loss, 0.0)))
        theta = np.where(better[:, None], theta + step, theta)
        residual = np.where(better[:, None], new_residual, residual)
        jacobian = np.where(better[:, None, None], new_jacobian, jacobian)
        loss = np.where(better, new_loss, loss)
        # Down by 5 after a step that helped, up by 8 after one that did not: each law of the batch by itself.
        damping = np.where(better, damping * 0.2, damping * 8.0)
        if gained < 1e-4 and bool(np.all(better)):
            break
    fitted = [
        Law(law.name, law.rows, law.mean, law.spread, theta[b], law.log_size) for b, law in enumerate(laws)
    ]
    return fitted, loss
