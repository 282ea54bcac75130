"""The service of a worker process that decodes the messages of sources."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from server.workers.messages import REQUEST, Call, framed


class Outcome(Protocol):
    """The result of decoding messages. It is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def failed(self) -> NDArray[Any]:
        """Whether each message could not be decoded."""
        ...

    @property
    def reason(self) -> Callable[[int], str]:
        """Why a message could not be decoded, by its row."""
        ...

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The results of consecutive parts of the messages as one."""
        ...


Found = TypeVar("Found", bound=Outcome, covariant=True)


class MessageDecoder(Protocol[Found]):
    """Decodes messages, each independently of the others. It can be pickled."""

    def decode(self, data: pa.BinaryArray) -> Found:
        """May run in a thread or in another process."""
        ...


@dataclass(frozen=True)
class Reasons:
    """The reasons why messages failed, by their rows, which are ascending."""

    rows: NDArray[np.intp]
    texts: pa.StringArray

    def __call__(self, row: int) -> str:
        return str(self.texts[int(np.searchsorted(self.rows, row))])


_SCHEMA = pa.schema([pa.field("data", pa.binary())])


def request_of(decoder: MessageDecoder[Any], data: pa.BinaryArray) -> bytes:
    """Returns a request to a worker, with the bytes that frame it."""
    # As a record batch, because a pickled slice contains the whole array.
    batch = pa.record_batch([data], schema=_SCHEMA)
    return framed(REQUEST, pickle.dumps((decoder, batch.serialize().to_pybytes())))


def loaded(answer: bytes) -> Any:
    """Returns the result that a worker's answer contains."""
    return pickle.loads(answer)


def serve(request: bytes, call: Call) -> bytes:
    """The pickled result of `decode`. Its `reason` is one of `Reasons`."""
    decoder: MessageDecoder[Any]
    decoder, batch = pickle.loads(request)
    (data,) = pa.ipc.read_record_batch(batch, _SCHEMA).columns
    found: Outcome = decoder.decode(data)
    rows = np.flatnonzero(found.failed)
    texts = pa.array([found.reason(row) for row in rows.tolist()], pa.string())
    return pickle.dumps(replace(found, reason=Reasons(rows, texts)))


def service() -> Callable[[bytes, Call], bytes]:
    """The service of a worker that decodes messages."""
    return serve
