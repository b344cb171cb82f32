"""One map over workers of several kinds, here and on Ray (Shirahata 2010).

`api` is the public face. A map's own thread runs the `scheduler`: it takes items from a `source`, calls rules
of `dovetail.splitting` who takes how many (`waiting`, `pace`), and gives them to the workers of a *crew*, the
processes of this machine (`local`) or another engine's (entry points `dovetail.crews`). `units` is where they
get their cores and devices from; what fails is judged by `outcomes` and `health`.
"""
