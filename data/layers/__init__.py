"""Layers of a model: their attention, plain or latent, and their feed-forward part, dense or of experts."""
