"""Coefficients from measured samples: latency, memory, and the network that predicts memory."""
