"""
Plans whose stages have other degrees on each type of device, as FlagScale runs them.

Begin with ``plan`` (from a request to a plan with its bound); ``report`` has it in words.
"""
