"""What nodes have, and what is free of it now."""
