"""When jobs start: forecasts walked forward through traces, beside plans and baselines."""
