"""Candidates whose schedule is priced by its order: their bounds and divisions."""
