"""
Readers of files that other tools write.

One module a format; each says what the other tool measures, in which unit, and what is assumed where the file is
silent. Readers return the specs of ``taut.data`` and refuse in one line what they cannot read.
"""
