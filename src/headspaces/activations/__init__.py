"""Activations: responses of later reads to writes on a text, attention patterns, and the models and texts for them."""
