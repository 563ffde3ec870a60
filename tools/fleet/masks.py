"""Secure aggregation (Bonawitz et al., 2017): the server learns the sum of all changes, and no single one.

Each member adds to its weighted change a mask that it shares with every other member, which cancel in the
sum, and one of its own. Both can be made again from shares that the members hold of each other's secrets: the
pairwise ones of a member that dropped out, the own one of a member whose change arrived, never both. All sums
are modular, so a masked value is any number, each as likely as the next.

    keys      a member's two public keys            member -> server -> all
    shares    of its two secrets, encrypted         member -> server -> each other member
    masked    its change under the masks            member -> server
    unmask    the shares that the sum needs         member -> server

Keys, encryption and Shamir's sharing are Flower's. What this does not hide: who takes part, how many samples
each has, and the sum itself. Nor does it help against a server that invents members.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from microtrain.base.reading import reading

from .errors import FleetError
from .layout import Layout, Part

LEAST = 3  # members: the sum of two is each one's change to the other
SEED_BYTES = 32
SUM_BITS = 24  # samples that all members have together, at most
Keys = tuple[bytes, bytes]  # public, for encryption and for masks


def threshold(members: int) -> int:
    """Members that must stay for a sum to be made: more than half, so that no two sums can be."""
    return members // 2 + 1


def widths(layout: Layout) -> list[np.dtype[np.uint64] | np.dtype[np.uint32]]:
    """The modulus of each tensor, by its type: no sum of all members leaves it."""
    narrow = [2 * part.limit << SUM_BITS + 1 < 1 << 32 for part in layout.parts]
    return [np.dtype(np.uint32) if one else np.dtype(np.uint64) for one in narrow]


def stream(layout: Layout, seed: bytes) -> list[np.ndarray]:
    """A mask for every value, uint32 or uint64 by tensor."""
    kinds = widths(layout)
    size = sum(part.size * kind.itemsize for part, kind in zip(layout.parts, kinds, strict=True))
    data, found, at = hashlib.shake_256(b"microtrain mask" + seed).digest(size), [], 0
    for part, kind in zip(layout.parts, kinds, strict=True):
        found.append(np.frombuffer(data, kind.newbyteorder("<"), part.size, at).astype(kind))
        at += part.size * kind.itemsize
    return found


def _modular(layout: Layout, values: np.ndarray) -> list[np.ndarray]:
    return [
        values[part.start : part.end].astype(np.uint64).astype(kind)
        for part, kind in zip(layout.parts, widths(layout), strict=True)
    ]


def _signed(part: Part, values: np.ndarray) -> np.ndarray:
    """Sums as signed numbers: the upper half of a modulus is negative."""
    signed = np.dtype(f"i{values.dtype.itemsize}")
    return values.view(signed).astype(np.int64)


def body_bytes(layout: Layout) -> int:
    return sum(p.size * k.itemsize for p, k in zip(layout.parts, widths(layout), strict=True))


def pair_seed(shared: bytes, federation: str, number: int) -> bytes:
    """Of the mask that two members share in a round."""
    return hashlib.sha256(shared + f"{federation} {number}".encode()).digest()


class Masker:
    """A member's side of one round; its secrets are of this round alone."""

    def __init__(self, name: str, layout: Layout, federation: str, number: int) -> None:
        from flwr.supercore.primitives.asymmetric import generate_key_pairs

        self.name, self.layout, self.federation, self.number = name, layout, federation, number
        self._cipher, self._mask = generate_key_pairs(), generate_key_pairs()
        self._own = os.urandom(SEED_BYTES)
        self._keys: dict[str, Keys] = {}
        self._held: dict[str, tuple[bytes, bytes]] = {}  # shares of others' secrets: mask key, own seed
        self._revealed = False

    def keys(self) -> Keys:
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        return public_key_to_bytes(self._cipher[1]), public_key_to_bytes(self._mask[1])

    def shares(self, keys: Mapping[str, Keys]) -> dict[str, bytes]:
        """Shares of both secrets for every other member, encrypted.

        Errors   FleetError where the list of keys is not sound
        """
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
        from flwr.supercore.primitives.asymmetric import private_key_to_bytes

        if self._keys:
            raise FleetError(f"{self.name} has shared its secrets already.")
        if len(keys) < LEAST or keys.get(self.name) != self.keys() or len(set(keys.values())) != len(keys):
            raise FleetError(
                f"{self.name} refuses a list of keys: too few, not its own, or one of them twice."
            )
        self._keys = dict(keys)
        names, least = sorted(keys), threshold(len(keys))
        secrets = [private_key_to_bytes(self._mask[0]), self._own]
        pieces = [create_shares(secret, least, len(names)) for secret in secrets]
        sent = {}
        for name, mask, own in zip(names, *pieces, strict=True):
            if name == self.name:
                self._held[name] = mask, own
            else:
                text = json.dumps([self.name, name, mask.hex(), own.hex()]).encode()
                sent[name] = encrypt(self._agreed(self._cipher[0], self._keys[name][0]), text)
        return sent

    def take(self, shares: Mapping[str, bytes]) -> None:
        """The other members' shares for this one. FleetError where one is not what its sender encrypted."""
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt

        for name, data in shares.items():
            with reading(FleetError, lambda why: f"{self.name} refuses a share that was changed ({why})."):
                key = self._agreed(self._cipher[0], self._keys[name][0])
                sender, receiver, mask, own = json.loads(decrypt(key, data))
                if (sender, receiver) != (name, self.name):
                    raise ValueError("of or for another member")
                self._held[name] = bytes.fromhex(mask), bytes.fromhex(own)

    def masked(self, weighted: np.ndarray) -> bytes:
        """The change times its samples, int64 [layout.size], under all masks."""
        if len(self._held) < threshold(len(self._keys)):
            raise FleetError(f"{self.name} sends nothing: too few members are left for a sum.")
        values = _modular(self.layout, weighted)
        _add(values, stream(self.layout, self._own))
        for name in sorted(self._held.keys() - {self.name}):
            seed = pair_seed(self._agreed(self._mask[0], self._keys[name][1]), self.federation, self.number)
            _add(values, stream(self.layout, seed), 1 if self.name < name else -1)
        return b"".join(one.astype(one.dtype.newbyteorder("<")).tobytes() for one in values)

    def unmask(self, arrived: set[str]) -> dict[str, bytes]:
        """For each member whose change arrived its own seed's share, for the others their mask key's.

        Errors   FleetError where too few have arrived, or this was asked before: two answers together would
                 reveal a change
        """
        if self._revealed or len(arrived) < threshold(len(self._keys)) or not arrived <= self._held.keys():
            raise FleetError(f"{self.name} reveals nothing: asked twice, or too few changes have arrived.")
        self._revealed = True
        return {name: own if name in arrived else mask for name, (mask, own) in self._held.items()}

    def _agreed(self, private: object, public: bytes) -> bytes:
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
        from flwr.supercore.primitives.asymmetric import bytes_to_public_key

        agreed: bytes = generate_shared_key(private, bytes_to_public_key(public))  # type: ignore[arg-type, unused-ignore]
        return agreed


@dataclass(frozen=True)
class Masked:
    """What the server has of a round: keys of all who shared, and bodies of those whose change arrived."""

    layout: Layout
    federation: str
    number: int
    keys: Mapping[str, Keys]
    bodies: Mapping[str, bytes]

    def total(self, revealed: Mapping[str, Mapping[str, bytes]]) -> np.ndarray:
        """The sum of the changes that arrived, int64 [layout.size].

        revealed  by member: what unmask() gave
        Errors    FleetError where too few answered, or shares do not fit together
        """
        from flwr.common.secure_aggregation.crypto.shamir import combine_shares

        least = threshold(len(self.keys))
        if len(revealed) < least:
            raise FleetError(f"the round has no sum: {len(revealed)} members are left, {least} are needed.")
        sums = [np.zeros(p.size, k) for p, k in zip(self.layout.parts, widths(self.layout), strict=True)]
        for body in self.bodies.values():
            _add(sums, self._parsed(body))
        for name in sorted(self.keys):
            pieces = [shares[name] for shares in revealed.values() if name in shares][:least]
            if 0 < len(pieces) < least:
                raise FleetError(f"the round has no sum: too few shares of {name} are left.")
            with reading(FleetError, lambda why: f"the round has no sum: shares do not fit ({why})."):
                secret = combine_shares(pieces) if pieces else b""
            self._lift(sums, name, secret)
        signed = [_signed(part, one) for part, one in zip(self.layout.parts, sums, strict=True)]
        return np.concatenate(signed)

    def _lift(self, sums: list[np.ndarray], name: str, secret: bytes) -> None:
        """Take a member's masks off the sum; of one that shared nothing there are none."""
        if name in self.bodies:
            if len(secret) != SEED_BYTES:
                raise FleetError(f"the round has no sum: the mask of {name} cannot be made again.")
            _add(sums, stream(self.layout, secret), -1)
        elif secret:
            from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
            from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

            for other in self.bodies:
                with reading(FleetError, lambda why: f"the round has no sum: a key does not fit ({why})."):
                    private, public = bytes_to_private_key(secret), bytes_to_public_key(self.keys[other][1])
                    seed = pair_seed(generate_shared_key(private, public), self.federation, self.number)
                _add(sums, stream(self.layout, seed), -1 if other < name else 1)

    def _parsed(self, body: bytes) -> list[np.ndarray]:
        if len(body) != body_bytes(self.layout):
            raise FleetError(f"a masked change of {len(body)} bytes is refused.")
        found, at = [], 0
        for part, kind in zip(self.layout.parts, widths(self.layout), strict=True):
            found.append(np.frombuffer(body, kind.newbyteorder("<"), part.size, at).astype(kind))
            at += part.size * kind.itemsize
        return found


def _add(values: list[np.ndarray], others: list[np.ndarray], sign: int = 1) -> None:
    """Modular, as unsigned integers are."""
    for value, other in zip(values, others, strict=True):
        if sign > 0:
            value += other
        else:
            value -= other
