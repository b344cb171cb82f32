"""The split of a map over kinds of workers: pure functions, shared by the simulation and the real driver.

`shares` is the split of Shirahata 2010, `finish_time` the exact optimum for whole tasks and the moment by
which the rest can be done, `rules` decide online who takes the next task, `sized` does so for tasks of
different size, `simulate` plays a map on nodes with heartbeats, noise and a shared file system.
"""
