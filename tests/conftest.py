"""Random tests have no deadline: the first call of a compiled loop takes seconds."""

from hypothesis import settings

settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")
