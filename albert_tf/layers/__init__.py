"""The encoder: its layers and its depth loop."""
