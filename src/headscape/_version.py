"""The version of headscape: one place, read by the build and by the program."""

__version__ = "0.1.0"
