"""Schedules whose order of passes is a formula, given devices and micro-batches."""
