"""Where uploads wait until all replies of a round have arrived.

Only then is it known which replies are valid, and so what weight each of them gets. In memory they
would take the size of a model per client. So beyond a limit they go to a temporary file and are
read back one client at a time, with the same bits. benchmarks/size.py measures what that saves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.params import Params, nbytes

IN_MEMORY_BYTES = 2**28  # of all uploads of a round that are held in memory

Uploads = Mapping[str, Params]  # by name


class Place(NamedTuple):
    """Where a tensor is in the file, and its form.

    Plain numbers: a tensor without memory would also do, but its few bytes would lie in the gap
    that a freed model leaves in the heap, into which the next model would no longer fit.
    """

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> Tensor:
        """A tensor of this form in main memory."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class StoredUploads(Mapping[str, Params]):
    """The uploads of one client in the file; each is read when it is asked for, and not kept."""

    spool: UploadSpool
    places: Mapping[str, Mapping[str, Place]]
    nbytes: int

    def __getitem__(self, name: str) -> Params:
        return {n: self.spool.read(place) for n, place in self.places[name].items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class UploadSpool:
    """The uploads of one round; a context manager that deletes the file at its end."""

    def __init__(self) -> None:
        self._held, self._end = 0, 0  # bytes in memory, and in the file
        self._file: IO[bytes] | None = None

    def keep(self, uploads: Uploads) -> Uploads:
        """The same uploads, read from the file if they exceed the limit for memory."""
        size = upload_bytes(uploads)
        if self._held + size <= IN_MEMORY_BYTES:
            self._held += size
            return uploads
        places = {
            name: {n: self._write(t) for n, t in params.items()} for name, params in uploads.items()
        }
        return StoredUploads(self, places, size)

    def _write(self, tensor: Tensor) -> Place:
        # the strides of a copy without the gaps that a view may have
        stride = torch.empty_like(tensor, device="meta").stride()
        place = Place(self._end, tuple(tensor.shape), stride, tensor.dtype, tensor.device)
        dense = tensor.detach().cpu()
        if dense.stride() != stride:
            dense = place.empty().copy_(dense)
        with _readable_errors():
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="fedloom-")  # noqa: SIM115 (__exit__)
            self._file.seek(self._end)
            self._file.write(_bytes_of(dense))
        self._end += tensor.nbytes
        return place

    def read(self, place: Place) -> Tensor:
        """The tensor at a place: the same bits in the same layout."""
        tensor = place.empty()
        with _readable_errors():
            assert self._file is not None
            self._file.seek(place.offset)
            if self._file.readinto(_bytes_of(tensor)) < tensor.nbytes:  # type: ignore[attr-defined]
                raise EOFError("it is shorter than what was written")
        return tensor.to(place.device)

    def __enter__(self) -> UploadSpool:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # writing the rest may fail again, and nobody will read it
                self._file.close()


def upload_bytes(uploads: Uploads) -> int:
    """The size of a client's uploads, without reading them from the file."""
    if isinstance(uploads, StoredUploads):
        return uploads.nbytes
    return sum(nbytes(params) for params in uploads.values())


def _bytes_of(tensor: Tensor) -> Any:
    """The memory of a tensor without gaps, in its own order, to write or to read into."""
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return flat.view(torch.uint8).numpy().data


@contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        # tempfile.gettempdir() raises where no folder is usable
        where = f" in {tempfile.tempdir}" if tempfile.tempdir else ""
        raise RunError(
            f"the updates of clients cannot be stored{where}: {reason}; "
            "free some space there, or set TMPDIR to a folder on another disk"
        ) from error
