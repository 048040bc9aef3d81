"""Tests of ``taut.simulation``."""
