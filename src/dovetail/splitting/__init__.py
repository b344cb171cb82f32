"""The split of a map over kinds of workers: pure functions, shared by `dovetail split` and the real map.

`finish_time` has the exact optimum for whole tasks and the moment by which the rest can be done, `rules`
decide online who takes the next task, `sized` does so for tasks of different size, `known` has the paper's
split.
"""
