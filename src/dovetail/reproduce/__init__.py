"""Studies that set the papers' figures beside ours."""
