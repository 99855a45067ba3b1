"""headscape maps the attention heads of transformers."""
