"""The serial protocol of docs/protocol.md: frames, check sums, lines and frames in one stream."""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

SYNC = b"\xa5\x5a"
ROW, WEIGHTS, DATA, SOUND = 1, 2, 3, 4
HEADER = struct.Struct("<2sBBIH")  # sync, type, sequence number, position, payload length
HEADER_BYTES = HEADER.size + 2
FRAME_OVERHEAD = HEADER_BYTES + 4  # bytes of a frame beside its payload
FRAME_LIMIT = 1024
DATA_BYTES = 512
LINE_LIMIT = 4096  # longer than anything the device says: 32 classes' logits are 300 characters


@dataclass(frozen=True)
class Frame:
    """One frame.

    kind      ROW, WEIGHTS, DATA or SOUND
    sequence  0..255, echoed in the answer
    position  first image row (ROW), byte offset (WEIGHTS, DATA) or number of the first sample (SOUND)
    intact    False where the payload's CRC did not hold
    """

    kind: int
    sequence: int
    position: int
    payload: bytes
    intact: bool = True


@dataclass(frozen=True)
class Line:
    """One line of text, without its end. intact: False where bytes that no line holds were left out."""

    text: str
    intact: bool = True


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xffff, not reflected."""
    return binascii.crc_hqx(data, 0xFFFF)


def crc32(data: bytes) -> int:
    """CRC-32 (IEEE 802.3), as zlib computes it."""
    return zlib.crc32(data)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame on the line. ValueError where the payload is too long."""
    if len(frame.payload) > FRAME_LIMIT:
        raise ValueError(f"a frame carries at most {FRAME_LIMIT} bytes, not {len(frame.payload)}")
    header = HEADER.pack(SYNC, frame.kind, frame.sequence & 0xFF, frame.position, len(frame.payload))
    return header + struct.pack("<H", crc16(header)) + frame.payload + struct.pack("<I", crc32(frame.payload))


class Receiver:
    """Takes the stream apart into lines and frames; whatever the line loses, it finds the next whole one.

    A5 is no text, so it starts a frame. Where the header's CRC does not hold, only the A5 is dropped and the
    bytes after it are looked at again, as on the device.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._text = bytearray()
        self._spoiled = False  # the line that is coming in has lost bytes
        self.dropped = 0  # bytes that belonged to no line and no frame

    def feed(self, data: bytes) -> Iterator[Line | Frame]:
        """Add received bytes; yields what is complete now."""
        self._bytes += data
        while self._bytes:
            if self._bytes[0] != SYNC[0]:
                yield from self._take_text()
                continue
            length = self._frame_length()
            if length is None or len(self._bytes) < length:
                return
            if length == 0:
                self._drop()
                continue
            yield self._take_frame(length)

    def reset(self) -> None:
        """Forget a half-received line or frame."""
        self._bytes.clear()
        self._forget_line()

    def _forget_line(self) -> None:
        self._text.clear()
        self._spoiled = False

    @property
    def inside_frame(self) -> bool:
        return bool(self._bytes)

    def _frame_length(self) -> int | None:
        """Bytes of the frame that starts here; 0: none does; None: too early to tell."""
        head = bytes(self._bytes[:HEADER_BYTES])
        if len(head) > 1 and head[:2] != SYNC:
            return 0
        if len(head) < HEADER_BYTES:
            return None
        length: int = HEADER.unpack_from(head)[4]
        good = struct.unpack_from("<H", head, HEADER.size)[0] == crc16(head[: HEADER.size])
        return HEADER_BYTES + length + 4 if good and length <= FRAME_LIMIT else 0

    def _take_frame(self, length: int) -> Frame:
        _, kind, sequence, position, size = HEADER.unpack_from(self._bytes)
        payload = bytes(self._bytes[HEADER_BYTES : HEADER_BYTES + size])
        intact = struct.unpack_from("<I", self._bytes, HEADER_BYTES + size)[0] == crc32(payload)
        if intact:
            del self._bytes[:length]
            self._forget_line()
        else:
            self._drop()  # bytes may be missing: the next frame can start inside what looked like this one
        return Frame(kind, sequence, position, payload, intact)

    def _take_text(self) -> Iterator[Line]:
        end = self._bytes.find(SYNC[0])
        text = self._bytes[: end if end >= 0 else len(self._bytes)]
        del self._bytes[: len(text)]
        for byte in text:
            if byte in b"\r\n":
                if self._text:
                    yield Line(self._text.decode("ascii"), not self._spoiled)
                self._forget_line()
            elif 32 <= byte < 127 and len(self._text) < LINE_LIMIT:
                self._text.append(byte)
            else:
                self.dropped += 1
                self._spoiled = True

    def _drop(self) -> None:
        del self._bytes[0]
        self.dropped += 1
        self._spoiled = True
