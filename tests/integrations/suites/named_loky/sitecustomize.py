"""Each Python with this folder on its path has Dovetail's backend under the name loky."""

import os

# Workers get their backends with their calls, and need none to start with.
if not os.environ.get("DOVETAIL_AROUND"):
    import loky_backend  # noqa: F401 - it registers itself
