"""How pipeline schedules are built, improved and proven."""
