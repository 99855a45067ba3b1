"""The experiments of both papers, run again: each claim beside what is found on networks that are at hand."""
