"""The only place where a power of ten or of two is written; everything inside is SI (seconds, bytes, FLOP)."""

KIB = 1024
GIB = 1024**3
GIGABYTE = 1e9
TERA = 1e12
MICROSECOND = 1e-6

GIGABIT = 1e9 / 8
"""Bytes in one gigabit (1e9 bits)."""

MOST_GIB = 2**20
MOST_BYTES = MOST_GIB * GIB
"""No device has more memory than this, and larger figures would overflow further on."""
