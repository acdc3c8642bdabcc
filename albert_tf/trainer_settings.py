import dataclasses

from albert_tf.choices import ALLOW_PICKLE_HELP, DTYPE_POLICIES, STRATEGIES
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerSettings(CheckedSettings):
    """Settings that pre-training, fine-tuning and compression share."""

    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)
    max_hours: float = setting(
        0.0, help="stop before this time is over; rerun the command to continue; 0: no limit", at_least=0
    )
    dtype_policy: str = setting(
        "float32", help="float32, or mixed_bfloat16 where the processor computes in bfloat16", choices=DTYPE_POLICIES
    )
    strategy: str = setting(
        "none", help="mirrored: the GPUs here; multi_worker: the processes of TF_CONFIG", choices=STRATEGIES
    )
