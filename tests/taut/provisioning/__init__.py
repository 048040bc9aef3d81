"""How many nodes to train on."""
