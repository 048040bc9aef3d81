"""What is to be solved, as mathematics on arrays: how a choice is priced and what is feasible."""
