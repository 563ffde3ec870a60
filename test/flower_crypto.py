"""What masks.py takes of Flower's cryptography, where Flower is not installed: arithmetic, and no secrecy.

Keys, sharing and encryption have Flower's names and types, so that what is our own of a masked round is
tested everywhere: who adds and who subtracts, which share is revealed, when there is no sum. Where Flower is
installed, the same tests run on Flower's.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import secrets
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

PRIME = 2**521 - 1  # larger than any secret of BYTES
BYTES, WIDE = 32, 66


@dataclass(frozen=True)
class PublicKey:
    value: int


@dataclass(frozen=True)
class PrivateKey:
    value: int

    def public_key(self) -> PublicKey:
        return PublicKey(pow(3, self.value, PRIME))


def generate_key_pairs() -> tuple[PrivateKey, PublicKey]:
    private = PrivateKey(secrets.randbits(8 * BYTES))
    return private, private.public_key()


def private_key_to_bytes(key: PrivateKey) -> bytes:
    return key.value.to_bytes(BYTES, "big")


def bytes_to_private_key(data: bytes) -> PrivateKey:
    return PrivateKey(int.from_bytes(data, "big"))


def public_key_to_bytes(key: PublicKey) -> bytes:
    return key.value.to_bytes(WIDE, "big")


def bytes_to_public_key(data: bytes) -> PublicKey:
    return PublicKey(int.from_bytes(data, "big"))


def generate_shared_key(private: PrivateKey, public: PublicKey) -> bytes:
    return hashlib.sha256(public_key_to_bytes(PublicKey(pow(public.value, private.value, PRIME)))).digest()


def encrypt(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256") + _mixed(key, text)


def decrypt(key: bytes, data: bytes) -> bytes:
    """ValueError where a byte was changed, or the key is another."""
    text = _mixed(key, data[BYTES:])
    if hmac.digest(key, text, "sha256") != data[:BYTES]:
        raise ValueError("of another key")
    return text


def _mixed(key: bytes, text: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(text, hashlib.shake_256(key).digest(len(text)), strict=True))


def create_shares(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Points of a polynomial whose value at 0 is the secret (Shamir, 1979)."""
    terms = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    points = {x: sum(term * x**n for n, term in enumerate(terms)) % PRIME for x in range(1, count + 1)}
    return [bytes([x]) + y.to_bytes(WIDE, "big") for x, y in points.items()]


def combine_shares(shares: list[bytes]) -> bytes:
    """OverflowError, mostly, where they are not of one secret."""
    points = {share[0]: int.from_bytes(share[1:], "big") for share in shares}
    secret = 0
    for x, y in points.items():
        for other in points.keys() - {x}:
            y = y * other * pow(other - x, -1, PRIME) % PRIME
        secret += y
    return (secret % PRIME).to_bytes(BYTES, "big")


PLACES = {
    "flwr.supercore.primitives.asymmetric": (
        generate_key_pairs,
        private_key_to_bytes,
        bytes_to_private_key,
        public_key_to_bytes,
        bytes_to_public_key,
    ),
    "flwr.common.secure_aggregation.crypto.shamir": (create_shares, combine_shares),
    "flwr.common.secure_aggregation.crypto.symmetric_encryption": (encrypt, decrypt, generate_shared_key),
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time of a test, unless Flower itself is there."""
    if importlib.util.find_spec("flwr") is not None:
        return
    for place, functions in PLACES.items():
        words = place.split(".")
        for end in range(1, len(words) + 1):
            name = ".".join(words[:end])
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
        for function in functions:
            monkeypatch.setattr(sys.modules[place], function.__name__, function, raising=False)
