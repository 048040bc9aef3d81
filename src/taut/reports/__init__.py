"""Results in words: a plan, a schedule, the catalog. Each module turns one result into text for a terminal."""
