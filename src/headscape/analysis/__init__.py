"""What the organized network says: Haar bases, entropy, stability, sparsity, regularity."""
