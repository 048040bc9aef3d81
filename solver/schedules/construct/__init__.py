"""
Construction of schedules.

``kinds`` names every kind and is the entry. ``multi_start`` samples list schedules (``priority_rules``) and improves
the best. ``block_assembly`` assembles schedules on the V from building blocks, by repeating, squeezing and reordering
them; ``v_sequences`` says what a schedule on the V is.
"""
