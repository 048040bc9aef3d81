"""Files that launch a plan: its strategy in a framework's words, and its placement in a process launcher's."""
