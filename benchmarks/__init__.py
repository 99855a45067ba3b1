"""Benchmarks: ratios against a named baseline in the same run, never timed tests."""
