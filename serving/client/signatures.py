"""What a served model takes and gives, as its server describes it."""

from dataclasses import dataclass

from serving.wire.protos import VERSION_STATES, GetModelMetadataResponse, GetModelStatusResponse, SignatureDefMap
from serving.wire.tensors import type_name


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. `shape`: None when the rank is unknown, -1 for a size that may vary."""

    name: str
    dtype: int
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join("any" if size < 0 else str(size) for size in self.shape)
        return f"{self.name}: {type_name(self.dtype)} [{sizes}]"


@dataclass(frozen=True)
class Signature:
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    method: str

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs.values())) for specs in (self.inputs, self.outputs))
        return f"({inputs}) -> ({outputs})"


@dataclass(frozen=True)
class VersionStatus:
    """One version of a model. `state`: START, LOADING, AVAILABLE, UNLOADING or END; `error`: why it failed, or ''."""

    version: int
    state: str
    error: str


def _specs(infos: dict) -> dict[str, TensorSpec]:
    specs = {}
    for name in sorted(infos):
        shape = infos[name].tensor_shape
        sizes = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        specs[name] = TensorSpec(name, infos[name].dtype, sizes)
    return specs


def read_metadata(response: GetModelMetadataResponse) -> tuple[int, dict[str, Signature]]:
    """The version that answered, and its signatures that can be called, by name."""
    definitions = SignatureDefMap.FromString(response.metadata["signature_def"].value).signature_def
    signatures = {
        name: Signature(
            _specs(definitions[name].inputs), _specs(definitions[name].outputs), definitions[name].method_name
        )
        for name in sorted(definitions)
        # TF 2 exports list their initialiser beside the signatures.
        if not name.startswith("__")
    }
    return response.model_spec.version.value, signatures


def read_status(response: GetModelStatusResponse) -> list[VersionStatus]:
    """Versions as the server lists them, newest first."""
    return [
        VersionStatus(entry.version, VERSION_STATES.get(entry.state, "UNKNOWN"), entry.status.error_message)
        for entry in response.model_version_status
    ]
