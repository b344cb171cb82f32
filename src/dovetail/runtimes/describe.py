"""Fits in words and numbers, for people: the law's formula, its weight, what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.runtimes.fits import Fit
from dovetail.runtimes.gaussian import Surface


def law_formula(fit: Fit, surface: Surface | None = None) -> str:
    """The law of a surface (default: the best) as a formula in seconds, e.g. ``3.2e-09 * n^2.97 + 0.31``."""
    surface = fit.best_surface if surface is None else surface
    law, design = surface.law, fit.design
    powers = law.theta[1 : 1 + len(design.sizes)]
    log_scale = float(law.theta[0])
    factors: list[str] = []
    for i, name in enumerate(design.sizes):
        if name in design.new:
            continue
        power = float(powers[i])
        centre = float(design.centre[i])
        if law.log_size:
            log_scale -= power * (centre + math.log(max(centre, 0.5)))
            factors.append(_power_text(f"({name} ln {name})", power))
            continue
        log_scale -= power * centre
        shown = f"(1+|{name}|)" if name in design.signed else name
        if abs(power) > 0.005:
            factors.append(_power_text(shown, power))
    at = 1 + len(design.sizes)
    for i, (name, value) in enumerate(design.marks):
        factor = math.exp(float(law.theta[at + i]))
        if abs(factor - 1) > 0.01:
            factors.append(f"({factor:.2g} if {name}={value})")
    at += len(design.marks)
    for i, part in enumerate(design.scaled):
        power = float(law.theta[at + i])
        log_scale -= power * float(design.centre[len(design.sizes) + i])
        factors.append(_power_text(("nodes", "cpus", "gpus")[part], power))
    text = " * ".join([f"{math.exp(max(-700.0, min(700.0, log_scale))):.4g}", *factors])
    overhead = math.exp(float(law.theta[-1])) if law.has_overhead else 0.0
    return f"{text} + {overhead:.4g}" if overhead > 1e-12 else text


def _power_text(name: str, power: float) -> str:
    return name if abs(power - 1) < 0.005 else f"{name}^{power:.3g}"


def law_name(fit: Fit, surface: Surface) -> str:
    """The law's name; without a size to be a power of, a power law is a constant."""
    return surface.law.name if fit.design.sizes else "constant"


def law_shares(fit: Fit) -> Sequence[tuple[str, float]]:
    """Each law's share in the prediction, largest first; with and without local correction apart."""
    shares: dict[str, float] = {}
    for surface, share in zip(fit.surfaces, fit.shares, strict=True):
        name = law_name(fit, surface) + (" with local correction" if surface.amplitude else "")
        shares[name] = shares.get(name, 0.0) + share
    return sorted(shares.items(), key=lambda item: -item[1])
