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
from .layout import Layout

LEAST = 3  # members: the sum of two is each one's change to the other
SEED_BYTES = 32
SUM_BITS = 24  # samples that all members have together, at most: no sum leaves 64 bits
BLOCK = 17  # values of a mask that SHAKE-256 gives at once
SHAKE = hashlib.shake_256
Keys = tuple[bytes, bytes]  # public, for encryption and for masks


def threshold(members: int) -> int:
    """Members that must stay for a sum to be made: more than half, so that no two sums can be."""
    return members // 2 + 1


def stream(layout: Layout, seed: bytes) -> np.ndarray:
    """A mask for every value, uint64 [size]: any stretch of it can be made without the rest."""
    blocks = -(-layout.size // BLOCK)
    parts = [
        SHAKE(b"microtrain mask" + seed + n.to_bytes(4, "little")).digest(8 * BLOCK) for n in range(blocks)
    ]
    return np.frombuffer(b"".join(parts), "<u8", layout.size).astype(np.uint64)


def body_bytes(layout: Layout) -> int:
    return 8 * layout.size


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

    def dumps(self) -> str:
        """All of it as text, for a node that forgets between two messages."""
        from flwr.supercore.primitives.asymmetric import private_key_to_bytes

        return json.dumps(
            {
                "federation": self.federation,
                "number": self.number,
                "private": [private_key_to_bytes(pair[0]).hex() for pair in (self._cipher, self._mask)],
                "own": self._own.hex(),
                "keys": {name: [one.hex() for one in both] for name, both in self._keys.items()},
                "held": {name: [one.hex() for one in both] for name, both in self._held.items()},
                "revealed": self._revealed,
            }
        )

    @classmethod
    def loads(cls, name: str, layout: Layout, text: str) -> Masker:
        """What dumps() wrote."""
        from flwr.supercore.primitives.asymmetric import bytes_to_private_key

        said = json.loads(text)
        masker = cls(name, layout, said["federation"], said["number"])
        cipher, mask = (bytes_to_private_key(bytes.fromhex(one)) for one in said["private"])
        masker._cipher, masker._mask = (cipher, cipher.public_key()), (mask, mask.public_key())
        masker._own, masker._revealed = bytes.fromhex(said["own"]), said["revealed"]
        masker._keys = {n: (bytes.fromhex(a), bytes.fromhex(b)) for n, (a, b) in said["keys"].items()}
        masker._held = {n: (bytes.fromhex(a), bytes.fromhex(b)) for n, (a, b) in said["held"].items()}
        return masker

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
        values = weighted.astype(np.uint64) + stream(self.layout, self._own)
        for name in sorted(self._held.keys() - {self.name}):
            seed = pair_seed(self._agreed(self._mask[0], self._keys[name][1]), self.federation, self.number)
            mask = stream(self.layout, seed)
            values = values + mask if self.name < name else values - mask
        return bytes(values.astype("<u8").tobytes())

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
        sums = np.zeros(self.layout.size, np.uint64)
        for body in self.bodies.values():
            sums += self._parsed(body)
        for name in sorted(self.keys):
            pieces = [shares[name] for shares in revealed.values() if name in shares][:least]
            if 0 < len(pieces) < least:
                raise FleetError(f"the round has no sum: too few shares of {name} are left.")
            with reading(FleetError, lambda why: f"the round has no sum: shares do not fit ({why})."):
                secret = combine_shares(pieces) if pieces else b""
            self._lift(sums, name, secret)
        return sums.view(np.int64)  # the upper half of the numbers is negative

    def _lift(self, sums: np.ndarray, name: str, secret: bytes) -> None:
        """Take a member's masks off the sum; of one that shared nothing there are none."""
        if name in self.bodies:
            if len(secret) != SEED_BYTES:
                raise FleetError(f"the round has no sum: the mask of {name} cannot be made again.")
            sums -= stream(self.layout, secret)
        elif secret:
            from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
            from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

            for other in self.bodies:
                with reading(FleetError, lambda why: f"the round has no sum: a key does not fit ({why})."):
                    private, public = bytes_to_private_key(secret), bytes_to_public_key(self.keys[other][1])
                    seed = pair_seed(generate_shared_key(private, public), self.federation, self.number)
                mask = stream(self.layout, seed)
                sums += mask if other > name else np.uint64(0) - mask

    def _parsed(self, body: bytes) -> np.ndarray:
        if len(body) != body_bytes(self.layout):
            raise FleetError(f"a masked change of {len(body)} bytes is refused.")
        return np.frombuffer(body, "<u8").astype(np.uint64)
