"""Who runs where: one algorithm per file, named by its key in the registry."""
