"""The only place where a power of ten or of two is written; everything inside is SI (seconds, bytes, FLOP)."""

KIB = 1024
MIB = 1024**2
GIB = 1024**3
MEGABYTE = 1e6
GIGABYTE = 1e9
GIGA = 1e9
TERA = 1e12
MICROSECOND = 1e-6
MILLISECOND = 1e-3
NANOSECONDS_PER_SECOND = 1e9
"""A factor, because 1e9 is exact in binary and 1e-9 is not."""

GIGABIT = 1e9 / 8
"""Bytes in one gigabit (1e9 bits)."""

MOST_GIB = 2**20
MOST_BYTES = MOST_GIB * GIB
"""No device has more memory than this, and larger figures would overflow further on."""
SATURATED_BYTES = 2**62
"""Products and sums of bytes are cut off here: more than any device has, and two of them still fit 64 bits."""
