"""
Papers' searches and predictions compared with their published figures, and peers' cost models.

Each paper has a module or a folder: ``amp``, ``pipette``, ``hethub``, ``vschedules``, ``vtrain``, ``aceso``,
``galvatron``. ``searches`` sets published plans beside the proven optimum. The core imports nothing from here; the
command ``taut reproduce`` does.
"""
