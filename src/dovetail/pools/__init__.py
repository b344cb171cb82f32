"""`dovetail.Executor`: calls on warm workers, those of maps, which come when calls wait and go when none do.

`executor` is the public face. A `pool` has a thread of its own, which gives calls to a crew: workers of this
machine (`dovetail.mapping.elastic`), or workers that are `jobs` of a service.
"""
