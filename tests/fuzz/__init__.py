"""Trials by damage: mutated files, killed runs, full disks. ``python -m tests.fuzz`` runs them all."""
