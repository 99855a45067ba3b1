"""One adapter per kind of model: how its attention is found, observed and sliced."""
