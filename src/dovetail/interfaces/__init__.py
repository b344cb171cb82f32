"""Every Protocol that a part of Dovetail, or a plugin, can implement. Read this first.

    events ──► Engine ──► decisions            the engine knows no clock and does no I/O
                 │ view
                 ▼
               Policy ── calls ─► RuntimeModel (how long?)   RateModel (how fast while sharing?)

A `Policy` is a frozen dataclass of its parameters and keeps no state between calls: whatever
accumulates (queues, promises, predictions used) is the engine's accounting, shown in the `View`.
Times are seconds, memory is bytes.

- `policy`: `Policy`, `Planner`, who decide, and the `Traits` that they declare.
- `views`: `View` and what it is made of, all that they may know.
- `learning`: `RuntimeModel`, `History`, `RateModel`, forecasts.
- `execution`: `Executor`, what some can do beyond that, `Backend`.
- `reading`: `WorkloadReader`.
"""

from __future__ import annotations

from dovetail.interfaces import execution, learning, policy, reading, views
from dovetail.interfaces.execution import *
from dovetail.interfaces.learning import *
from dovetail.interfaces.policy import *
from dovetail.interfaces.reading import *
from dovetail.interfaces.views import *

__all__: list[str] = []
__all__ += execution.__all__
__all__ += learning.__all__
__all__ += policy.__all__
__all__ += reading.__all__
__all__ += views.__all__
