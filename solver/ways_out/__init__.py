"""Why nothing fits, by how much, and the nearest changes that make it fit."""
