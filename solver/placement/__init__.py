"""Where every worker goes: exact on few slots, annealed on many, bounded on all."""
