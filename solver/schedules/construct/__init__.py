"""Construction of schedules: published kinds, list scheduling, and repeated building blocks."""
