"""Ways to grow a partition tree from an affinity."""
