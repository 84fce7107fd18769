"""The file with the tokens."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.cli.user.credentials import CredentialFile, config_folder
from shared.cli.user.failure import Failure

URL, OTHER = "https://api.example", "https://other.example"


@pytest.fixture
def file(tmp_path: Path) -> CredentialFile:
    return CredentialFile(tmp_path / "b3os")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_found_for_its_server_alone(file: CredentialFile) -> None:
    file.save(URL, "a")
    file.save(OTHER, "b")
    assert (file.token_of(URL), file.token_of(OTHER), file.token_of("https://third.example")) == ("a", "b", None)
    assert file.current_url() == OTHER


def test_the_file_is_private_from_its_first_moment_on(
    file: CredentialFile, no_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def look(fd: int) -> None:
        seen.append(("open", stat.S_IMODE(os.fstat(fd).st_mode)))
        seen.extend((path.name, mode_of(path)) for path in file.folder.iterdir())

    monkeypatch.setattr(os, "fsync", look)
    file.save(URL, "a")
    assert len(seen) == 2
    assert {mode for _, mode in seen} == {0o600}
    assert mode_of(file.path) == 0o600
    assert mode_of(file.folder) == 0o700


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    file: CredentialFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(URL, "a")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Failure, match="No space left"):
        file.save(URL, "b")
    assert file.token_of(URL) == "a"
    assert [path.name for path in file.folder.iterdir()] == ["credentials.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602])
def test_a_file_that_others_can_read_or_write_is_refused(file: CredentialFile, mode: int) -> None:
    file.save(URL, "a")
    file.path.chmod(mode)
    with pytest.raises(Failure, match=r"can be read by others .*`chmod 600`"):
        file.token_of(URL)
    with pytest.raises(Failure, match="can be read by others"):
        file.save(OTHER, "b")
    assert CredentialFile(file.folder, forgiving=True).token_of(URL) == "a"


def test_a_file_of_another_user_is_refused(file: CredentialFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.save(URL, "a")
    monkeypatch.setattr(os, "geteuid", lambda: file.path.stat().st_uid + 1)
    with pytest.raises(Failure, match="belongs to another user"):
        file.token_of(URL)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ufffd" * 10])
def test_a_damaged_file_is_told_and_can_be_got_rid_of(file: CredentialFile, text: str) -> None:
    file.save(URL, "a")
    file.path.write_text(text)
    with pytest.raises(Failure, match="is damaged; `b3os logout` removes it"):
        file.token_of(URL)
    forgiving = CredentialFile(file.folder, forgiving=True)
    assert forgiving.token_of(URL) is None
    forgiving.forget(URL)
    assert not file.path.exists()


@pytest.mark.parametrize("servers", [None, [], {URL: None}, {URL: {"token": 5}}, {URL: ["token"]}])
def test_entries_of_other_shapes_are_no_tokens(file: CredentialFile, servers: object) -> None:
    file.save(URL, "a")
    file.path.write_text(json.dumps({"servers": servers, "current": 7}))
    assert file.token_of(URL) is None
    assert file.current_url() is None


def test_to_forget_leaves_the_others_and_what_a_newer_version_wrote(file: CredentialFile) -> None:
    file.save(URL, "a")
    file.path.write_text(json.dumps({**json.loads(file.path.read_text()), "newer": 1}))
    file.save(OTHER, "b")
    file.forget(OTHER)
    assert json.loads(file.path.read_text()) == {
        "version": 1,
        "newer": 1,
        "current": URL,
        "servers": {URL: {"token": "a"}},
    }
    file.forget(URL)
    assert not file.path.exists()
    file.forget(URL)


def test_a_link_stays_one(file: CredentialFile, tmp_path: Path) -> None:
    file.folder.mkdir()
    target = tmp_path / "elsewhere.json"
    target.write_text("{}")
    target.chmod(0o600)
    file.path.symlink_to(target)
    file.save(URL, "a")
    assert file.path.is_symlink()
    assert "a" in target.read_text()


def test_logins_at_the_same_time_keep_each_other_s_tokens(file: CredentialFile) -> None:
    code = (
        "import sys; from pathlib import Path; from shared.cli.user.credentials import CredentialFile\n"
        "for n in range(20): CredentialFile(Path(sys.argv[1])).save(f'https://{sys.argv[2]}-{n}.example', 'x')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(file.folder), name]) for name in "abc"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(file.read()["servers"]) == 60


def test_the_folder_is_the_platform_s() -> None:
    home = {"HOME": "/home/me"}
    assert config_folder({**home, "XDG_CONFIG_HOME": "/etc/me"}, "darwin") == Path("/etc/me/b3os")
    assert config_folder({**home, "XDG_CONFIG_HOME": "relative"}, "linux") == Path("/home/me/.config/b3os")
    assert config_folder(home, "darwin") == Path("/home/me/Library/Application Support/b3os")
    assert config_folder({**home, "APPDATA": "/appdata"}, "win32") == Path("/appdata/b3os")
