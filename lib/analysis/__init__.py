"""What notebooks measure beside scores: attention, structure of texts, geometry, cost, and the published tables."""
