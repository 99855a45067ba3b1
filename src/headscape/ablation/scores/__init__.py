"""One file per way to score heads; low scores go first."""
