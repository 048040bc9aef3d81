"""Names of the array types that annotations use; each fixes the element type alone, the docstrings state the shape."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Real numbers in double precision, such as seconds."""
Ints = NDArray[np.int64]
"""Integers, such as indices and counts."""
Ints32 = NDArray[np.int32]
"""Integers in large tables of small numbers."""
Ints16 = NDArray[np.int16]
"""Integers in tables of millions of rows, such as layers of chunks."""
Flags = NDArray[np.bool_]
"""Truth values."""
Bits = NDArray[np.uint64]
"""Sets of up to 64 elements, a bit each, and the state of a random generator."""
Narrow = NDArray[np.signedinteger]
"""Whole numbers of fewer bytes: a large graph is read as fast as memory gives it."""
