"""The kernels on a Cortex-M55 with Helium: QEMU runs them, its debugger's port is how they are called.

`M55Lib` is kernel_arm.ArmLib with another machine under it. The core stops at `stop` in kernel_m55.S, is
given a call in a mailbox, and goes on until it is there again.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import kernel_arm
import numpy as np
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

QEMU = "qemu-system-arm"
CPU = "cortex-m55"
MAILBOX = kernel_arm.RAM  # below what kernel_arm.Memory lays out
STUB = Path(__file__).with_suffix(".S")
CALL = struct.Struct("<13I")  # function, r0-r3, s0-s3, results r0 and s0, what a callee spoiled, sp
PACKET = 1800  # bytes of memory a packet
ECHO_S = 60


class Debugger:
    """Memory of a stopped core, and letting it go on: the remote protocol of GDB."""

    def __init__(self, at: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ECHO_S)
        until = time.monotonic() + ECHO_S
        while self._socket.connect_ex(str(at)):
            assert time.monotonic() < until, "QEMU does not listen"
            time.sleep(0.01)
        self._rest = b""

    def ask(self, text: str) -> str:
        packet = text.encode()
        self._socket.sendall(b"$%s#%02x" % (packet, sum(packet) & 0xFF))
        while b"#" not in self._rest or len(self._rest) < self._rest.index(b"#") + 3:
            self._rest += self._socket.recv(65536)
        end = self._rest.index(b"#")
        answer, self._rest = self._rest[:end].lstrip(b"+$"), self._rest[end + 3 :]
        self._socket.sendall(b"+")
        return answer.decode()

    def mem_write(self, at: int, data: bytes) -> None:
        for i in range(0, len(data), PACKET):
            part = data[i : i + PACKET]
            answer = self.ask(f"M{at + i:x},{len(part):x}:{part.hex()}")
            assert answer == "OK", f"QEMU wrote nothing at {at + i:#x}: {answer}"

    def mem_read(self, at: int, size: int) -> bytes:
        parts = [self.ask(f"m{at + i:x},{min(PACKET, size - i):x}") for i in range(0, size, PACKET)]
        return bytes.fromhex("".join(parts))

    def run(self) -> None:
        self.ask("s")  # off the breakpoint
        answer = self.ask("c")
        assert answer.startswith("T05"), f"the core did not come back: {answer}"


class M55Lib(kernel_arm.ArmLib):
    """The kernels of an ELF as methods, by the headers' names."""

    def __init__(self, elf: Path) -> None:
        self.instructions = 0
        self._folder = tempfile.TemporaryDirectory(prefix="m55-")
        with elf.open("rb") as file:
            table: Any = ELFFile(file).get_section_by_name(".symtab")
            self._symbols = {s.name: s["st_value"] for s in table.iter_symbols()}
        port, vectors = Path(self._folder.name) / "gdb", Path(self._folder.name) / "vectors"
        vectors.write_bytes(struct.pack("<2I", MAILBOX, self._symbols["start"] | 1))
        machine = ["-M", "mps3-an547", "-nographic", "-monitor", "none", "-serial", "none"]
        load = ["-device", f"loader,file={vectors},addr=0x0", "-kernel", str(elf)]
        listen = ["-chardev", f"socket,path={port},server=on,wait=off,id=gdb", "-gdb", "chardev:gdb", "-S"]
        self._process = subprocess.Popen(
            [QEMU, *machine, *load, *listen], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._uc = Debugger(port)
        assert self._uc.ask(f"Z0,{self._symbols['stop'] & ~1:x},2") == "OK"
        self._uc.run()

    def __enter__(self) -> M55Lib:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _run(self, name: str, words: list[int], floats: list[Any]) -> None:
        stack = kernel_arm.RAM + kernel_arm.STACK - 64
        self._uc.mem_write(stack, b"".join(word.to_bytes(4, "little") for word in words[4:]))
        first = [*words[:4], *[0] * (4 - len(words[:4]))]
        raw = [int(np.asarray(value).view(np.uint32)) for value in floats]
        call = [self._symbols[name] | 1, *first, *raw, *[0] * (4 - len(raw)), 0, 0, 1, stack]
        self._uc.mem_write(self._symbols["mailbox"], CALL.pack(*call))
        self._uc.run()
        self._said = CALL.unpack(self._uc.mem_read(self._symbols["mailbox"], CALL.size))
        assert self._said[11] == 0, f"{name} did not keep a register that it must keep"

    def _result(self, register: int) -> int:
        found: int = self._said[9 if register == arm.UC_ARM_REG_R0 else 10]
        return found
