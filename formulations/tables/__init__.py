"""Figures of every range of layers at the degrees of a candidate: seconds, traffic within blocks, bytes, memory."""
