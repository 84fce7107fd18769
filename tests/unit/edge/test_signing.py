"""The signing key's files."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from edge.signing import BadSigningKey, create_key_files, load_signing_key


def test_both_files_belong_together_and_only_the_owner_reads_the_private_one(tmp_path: Path) -> None:
    private, public = tmp_path / "keys" / "private.pem", tmp_path / "keys" / "public.json"
    kid = create_key_files(private, public)
    loaded = load_signing_key(private)
    [(public_kid, pem)] = json.loads(public.read_text()).items()
    assert kid == loaded.kid == public_kid
    assert load_pem_public_key(pem.encode()) == loaded.private.public_key()
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


@pytest.mark.parametrize("existing", ["private.pem", "public.json"])
def test_nothing_is_overwritten(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    with pytest.raises(BadSigningKey, match="exists already"):
        create_key_files(tmp_path / "private.pem", tmp_path / "public.json")
    assert (tmp_path / existing).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_unreadable_key_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadSigningKey, match="can't be read: No such file"):
        load_signing_key(tmp_path / "missing.pem")
    (tmp_path / "bad.pem").write_text("nonsense")
    with pytest.raises(BadSigningKey, match="not a private key"):
        load_signing_key(tmp_path / "bad.pem")
