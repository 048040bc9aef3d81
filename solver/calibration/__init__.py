"""Fits to measured runs: coefficients of the step time, memory models, and memory networks."""
