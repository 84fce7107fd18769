"""What a JSON Schema allows, as far as it can be enforced while a model writes."""
