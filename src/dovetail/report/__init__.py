"""What came out: metrics, tables, charts, pages."""
