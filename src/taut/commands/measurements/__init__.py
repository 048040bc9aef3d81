"""Verbs that read or make measurements: ``profile``, ``fit`` and ``import``, a module each."""
