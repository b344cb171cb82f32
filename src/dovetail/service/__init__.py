"""The queue that is always there: one driver as a service, and who talks to it.

    cli ── client ── HTTP on a socket ── app ── core ── LiveRun, Driver     all in one loop
                                          │       └─ ledger, history, journals: on disk before an answer
                                     auth, limits

`dovetail.client.connection` is all that clients import: it needs the standard library only.
"""
