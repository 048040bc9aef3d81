"""
What launchers are told, read as values of a configuration: command lines, start scripts, YAML, TOML, JSON and modules.

Begin with ``taut.launchers.read``, which tells the forms apart. ``taut.launchers.shell`` finds the words of a script,
``taut.launchers.megatron_rules`` holds what Megatron-LM refuses, and every other module reads one launcher.
"""
