"""Tests of ``taut.formulations.simulation``."""
