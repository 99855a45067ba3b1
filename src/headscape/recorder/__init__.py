"""What a model does on given inputs: windows in, queries and keys out, heads gated on the way."""
