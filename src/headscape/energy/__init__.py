"""The energy field of softmax attention: invariants, spectra, delocalization, key incoherence (IS)."""
