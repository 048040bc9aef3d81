"""The strategy program, solved by backends that must agree, and the exhaustive oracle."""
