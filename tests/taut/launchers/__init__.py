"""Tests of what launchers are told."""
