"""
Plans of meshes, found and proven.

Begin with ``bound`` (what no plan of a choice is below), then ``search`` (the branch and bound over choices).
"""
