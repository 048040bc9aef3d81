"""Files that launch plans."""
