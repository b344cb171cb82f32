"""Whether a node fits: against what the engine's capacity finds on an idle cluster, and unit by unit."""

from __future__ import annotations

import numpy as np
from random_instances import cluster_of, workload_of

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.model import HOST_CPUS, WHOLE_POOL, Cluster, Device, Node, Request, fits_node, units_for
from dovetail.model.fitting import cpus_on, share_of_device, whole_devices
from dovetail.testing.builders import full


def test_it_agrees_with_the_engines_capacity_on_idle_nodes() -> None:
    asked = fitting = 0
    for seed in range(full(2000, 300)):
        rng = np.random.Generator(np.random.PCG64(seed))
        cluster = cluster_of(rng)
        free = FreeCapacity(Layout(cluster))
        for request in {c.request.on(1) for job in workload_of(rng, cluster).jobs for c in job.choices}:
            expected = [free.fit(request, within=1 << n) is not None for n in range(len(cluster))]
            assert [fits_node(request, node) for node in cluster.nodes] == expected, (seed, request)
            free_units = [u for u in cluster.units if free.fit_unit(request, u) is not None]
            kinds = {kind for kind, _ in request.devices} or {"cpu"}
            assert list(units_for(cluster, request)) == [u for u in free_units if u.kind in kinds]
            asked, fitting = asked + len(expected), fitting + sum(expected)
    assert 0 < fitting < asked


def test_whole_pools_and_host_cpus() -> None:
    none, host = Node("n0", ()), Node("n1", (0, 1), (Device("gpu"),), host_cpus=1)
    assert not fits_node(Request(cpus=WHOLE_POOL), none)
    assert fits_node(Request(cpus=HOST_CPUS, devices=(("gpu", 1),)), host)
    assert [cpus_on(Request(cpus=c), 2, 1) for c in (WHOLE_POOL, HOST_CPUS, 0)] == [2, 1, 0]


def test_shares_of_devices_are_of_one_device() -> None:
    assert [whole_devices(count) for count in (0.2, 1, 3)] == [1, 1, 3]
    assert [share_of_device(count) for count in (0.25, 1, 2)] == [250_000, 1_000_000, 1_000_000]


def test_models_restrict_devices_and_leave_cpus_alone() -> None:
    node = Node("n0", (0,), (Device("gpu", "T4"), Device("gpu", "A100", 1)), cpu_model="EPYC")
    cluster = Cluster((node,))
    names = {
        "gpu": [u.name for u in units_for(cluster, Request(1, 0, (("gpu", 1),), 0, ("A100",)))],
        "cpu": [u.name for u in units_for(cluster, Request(1, 1, (), 0, ("A100",)))],
    }
    assert names == {"gpu": ["n0/gpu1"], "cpu": ["n0/cpu"]}
