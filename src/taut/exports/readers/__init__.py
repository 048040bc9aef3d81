"""
Launchers' settings, read as values that ``taut.plan`` may fix.

Begin with ``any_settings``, which tells the formats apart. ``megatron_line`` and ``torchtitan_fields`` read flags.
"""
