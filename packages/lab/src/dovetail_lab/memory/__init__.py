"""What reserving memory wastes: traces with measured peaks, under the rules of the literature and ours."""
