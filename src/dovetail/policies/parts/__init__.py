"""What several policies share: algorithms stand in `dovetail.policies`, their tools here."""
