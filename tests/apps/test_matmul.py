from __future__ import annotations

import numpy as np

from dovetail_lab.apps import matmul


def test_against_double_precision() -> None:
    a, b = matmul.inputs(37, np.random.default_rng(1))
    np.testing.assert_allclose(matmul.cpu(a, b), a.astype(float) @ b.astype(float), rtol=1e-5)
