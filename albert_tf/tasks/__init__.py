"""What a model can be fine-tuned for: how examples are read, made into features, scored and written down."""
