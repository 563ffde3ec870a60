"""What goes over the line in frames, and goes again where one is lost: rows, samples of sound, trainables."""

from __future__ import annotations

import numpy as np

from .conversation import Conversation
from .errors import AnswerError, DamagedError, DeviceError, NoAnswerError
from .protocol import DATA, DATA_BYTES, FRAME_OVERHEAD, ROW, SOUND, WEIGHTS, Frame, crc32, encode
from .rate import Rate

WINDOW_BYTES = 512  # of frames on their way without an answer: half the device's receive ring
TRIES = 4  # a frame, or a whole pull, is sent this often before the line is called bad
SOUND_SAMPLES = DATA_BYTES // 2  # of a frame
ROWS_S = 10.0  # the first layers run as rows come, of which a frame may hold hundreds


class Frames:
    """Frames of a conversation. A rate that hurry() chose is given up where one of them is lost."""

    def __init__(self, talk: Conversation, rate: Rate) -> None:
        self._talk = talk
        self._sequence = 0
        self._rate = rate
        self._hurried = False

    def send_image_rows(self, rows: np.ndarray, first: int) -> None:
        """Send rows of an image, of which the first has the given number; as many in a frame as may be on
        their way."""
        together = max(1, (WINDOW_BYTES - FRAME_OVERHEAD) // rows[0].nbytes)
        for start in range(0, len(rows), together):
            self._send_rows(first + start, rows[start : start + together])

    def send_samples(self, samples: np.ndarray, first: int, end: int) -> None:
        """Send what rows are made of, int16 [end - first], block by block."""
        if samples.shape != (end - first,):
            raise DeviceError(f"a sound must be int16 of {end - first} samples, not {list(samples.shape)}.")
        for start in range(first, end, SOUND_SAMPLES):
            block = samples[start - first : start - first + SOUND_SAMPLES].astype("<i2").tobytes()
            self.send_frame(SOUND, start, block, f"ok sound {start}", f"sound from sample {start} on")

    def _send_rows(self, start: int, rows: np.ndarray) -> None:
        """Send neighbouring rows in one frame; where its answer is missing or bad, again and one by one."""
        self._sequence = (self._sequence + 1) & 0xFF
        self._talk.send(encode(Frame(ROW, self._sequence, start, rows.tobytes())))
        try:
            self._talk.answer(f"image row {start}", f"ok row {start} {self._sequence}", ROWS_S)
        except (NoAnswerError, AnswerError) as error:
            if isinstance(error, AnswerError) and error.word not in ("frame", "command"):
                raise
            self._talk.settle()
            self._lost()
            for y, row in enumerate(rows, start):
                self.send_frame(ROW, y, row.tobytes(), f"ok row {y}", f"image row {y}")

    def send_frame(self, kind: int, position: int, payload: bytes, expect: str, what: str) -> None:
        """Send one frame until it is acknowledged."""
        for _ in range(TRIES):
            self._sequence = (self._sequence + 1) & 0xFF
            done = expect if expect.endswith("done") else f"{expect} {self._sequence}"
            self._talk.send(encode(Frame(kind, self._sequence, position, payload)))
            try:
                self._talk.answer(what, done)
                return
            except NoAnswerError:
                self._talk.settle()
            except AnswerError as error:
                if error.word not in ("frame", "command"):
                    raise
                self._talk.settle()
        raise DeviceError(
            f"{what} did not get through in {TRIES} tries: check the cable or use a lower --baud."
        )

    def pull(self) -> bytes:
        """All trainables, as they lie in the device's memory."""
        for _ in range(TRIES):
            try:
                answer = self._talk.command("pull", "ok pull")
                size, check = answer.values(int, lambda digits: int(digits, 16))
            except (NoAnswerError, DamagedError):
                self._talk.settle()
                self._lost()
                continue
            block = join_frames(answer.frames)
            if len(block) == size and crc32(block) == check:
                return block
            self._talk.settle()
            self._lost()
        raise DeviceError(
            f"the trainables arrived corrupt {TRIES} times: check the cable or use a lower --baud."
        )

    def push(self, block: bytes, model_id: str) -> None:
        """Send the bytes; the device takes them over only when the CRC of all of them holds."""
        self._talk.command(f"push {len(block)} {crc32(block):08x} {model_id}", "ok push")
        for start in range(0, len(block), DATA_BYTES):
            payload = block[start : start + DATA_BYTES]
            last = start + len(payload) == len(block)
            expect = "ok push done" if last else f"ok weights {start}"
            self.send_frame(WEIGHTS, start, payload, expect, f"weights at {start}")

    def hurry(self) -> int:
        """Take the fastest rate that the line bears; returns it. Where it then loses a frame it goes back."""
        self._hurried = True
        return self._rate.raise_to_fastest()

    def _lost(self) -> None:
        """A frame was lost. At a rate that hurry() chose it may be the rate: back to the one before."""
        if self._hurried:
            self._hurried = False
            self._rate.lower()


def join_frames(frames: tuple[Frame, ...]) -> bytes:
    """The bytes of DATA frames that follow one another without a gap; shorter where one is missing."""
    block = b""
    for frame in frames:
        if frame.kind == DATA and frame.intact and frame.position == len(block):
            block += frame.payload
    return block
