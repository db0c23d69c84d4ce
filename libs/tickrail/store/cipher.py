"""Encryption of secrets at rest. The only user of `cryptography` here.

Fernet (AES-128-CBC and HMAC-SHA-256) under the first key; every key decrypts, so that keys can be
changed one after another. The tenant and the name stand inside what is encrypted: a ciphertext that
was copied to another row is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from tickrail.core.errors import Problem, SettingsError, SetupError

SETTING = "TICKRAIL_SECRET_KEYS"
_EXPECTED = "keys of 32 bytes in URL-safe base64; `tickrail secrets new-key` makes one"


def new_key() -> str:
    """A new key, as the setting takes it."""
    return Fernet.generate_key().decode()


class SecretCipher:
    """Encrypts and decrypts the values of secrets. Safe to use from several threads."""

    def __init__(self, keys: Sequence[str]) -> None:
        """With these keys, the one that encrypts first; without keys it refuses each use.

        Raises:
            SettingsError: one of them is no key; says which, not what it is.
        """
        found: list[Fernet] = []
        problems: list[Problem] = []
        for place, key in enumerate(keys, 1):
            try:
                found.append(Fernet(key))
            except ValueError:
                problems.append(Problem(SETTING, f"key {place} is none", _EXPECTED))
        if problems:
            raise SettingsError("The keys for secrets cannot be used.", problems)
        self._fernet = MultiFernet(found) if found else None
        self._first = found[0] if found else None

    def encrypt(self, tenant: UUID, name: str, value: bytes) -> bytes:
        """What is stored of a value.

        Raises:
            SetupError: there is no key.
        """
        return self._keys().encrypt(_place(tenant, name) + value)

    def decrypt(self, tenant: UUID, name: str, ciphertext: bytes) -> bytes:
        """The value of a ciphertext.

        Raises:
            SetupError: no key fits, or it is another secret's.
        """
        try:
            found = self._keys().decrypt(ciphertext)
        except InvalidToken:
            raise SetupError(
                f"The secret {name!r} is encrypted with a key that is not in {SETTING}."
            ) from None
        place = _place(tenant, name)
        if not found.startswith(place):
            raise SetupError(f"What is stored for the secret {name!r} is another secret's.")
        return found[len(place) :]

    def is_current(self, ciphertext: bytes) -> bool:
        """Whether the first key made it."""
        if self._first is None:
            return False
        try:
            self._first.decrypt(ciphertext)
        except InvalidToken:
            return False
        return True

    def _keys(self) -> MultiFernet:
        if self._fernet is None:
            raise SetupError(f"Secrets need a key: set {SETTING} for the API and the workers.")
        return self._fernet


def _place(tenant: UUID, name: str) -> bytes:
    return tenant.bytes + name.encode() + b"\x00"
