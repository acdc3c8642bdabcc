import math


def scale_learning_rate(learning_rate: float, batch_size: int, reference_batch_size: int = 4096) -> float:
    """Scales a learning rate by sqrt(`batch_size` / `reference_batch_size`) (google-research/albert issue 111).

    >>> scale_learning_rate(0.00176, batch_size=1024)
    0.00088
    """
    return learning_rate * math.sqrt(batch_size / reference_batch_size)
