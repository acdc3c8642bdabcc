"""Fine-tuning tasks: read examples, make features, score, write predictions."""
