"""The data: network tensors with their labels, and the store that every stage writes to."""
