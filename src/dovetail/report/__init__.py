"""What came out: metrics, tables, charts, pages. `dovetail.report.report` has what the Python API returns."""
