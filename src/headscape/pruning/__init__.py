"""Which heads matter, and models without those that do not: rankings, ablation, removal, repair."""
