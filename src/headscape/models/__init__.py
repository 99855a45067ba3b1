"""Models: loaded by name, and one place that knows where attention is in them.

The one room that knows torch and transformers; both are loaded when a model is.
"""
