from __future__ import annotations

import numpy as np

from dovetail_lab.apps import sobel
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


def test_against_scipy(opencl: Device, cpu: Device) -> None:
    from scipy import ndimage

    inputs = sobel.inputs(53, np.random.default_rng(0))
    image = inputs[0].astype(float)
    down, across = (ndimage.sobel(image, axis, mode="constant") for axis in (0, 1))
    for device in (opencl, cpu):
        got, _ = compute_once("sobel", device, inputs)
        np.testing.assert_allclose(got, np.hypot(down, across), rtol=1e-6)


def test_flat_image_has_no_gradient_inside() -> None:
    gradient = sobel.cpu(np.full((9, 9), 200, dtype=np.uint8))
    assert not gradient[1:-1, 1:-1].any()
    assert gradient[0].all()
