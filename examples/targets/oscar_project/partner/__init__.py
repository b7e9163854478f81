"""Oscar's partner app with one method changed, as its guide customises a model: --repaired."""
