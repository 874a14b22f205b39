"""State files: who writes them, who may, and which of them count."""

import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from plugins.host.failure import Failure
from plugins.host.instance import Record, State, birth_mark, find_instances, make_folder


def open_record(listen: str = "127.0.0.1:8000", config: Path | None = None) -> Record:
    """The record of this process."""
    record = Record(State.of_this_process(listen, config))
    record.open()
    return record


def test_record(state_folder: Path) -> None:
    """A record is one file that only its owner can read, found by its configuration, gone when it is removed."""
    record = open_record(config=Path("kernel.yaml"))
    assert record.path is not None
    assert record.path.parent == state_folder / "disagg-kernel"
    assert record.path.parent.stat().st_mode & 0o777 == 0o700
    (instance,) = find_instances(Path("kernel.yaml"))
    assert instance.state == record.state
    assert instance.processes == (record.state,)
    assert find_instances() == []
    assert find_instances(Path("other.yaml")) == []
    record.remove()
    assert not list(record.path.parent.iterdir())


def test_keys(state_folder: Path) -> None:
    """The file has the keys that other programs may read."""
    record = open_record()
    record.update(refused=("a", "b"), hangups=2)
    assert record.path is not None
    data = json.loads(record.path.read_text())
    assert data["pid"] == os.getpid()
    assert (data["listen"], data["config"], data["workers"]) == ("127.0.0.1:8000", None, 1)
    assert (data["refused"], data["hangups"], data["reloads"]) == (["a", "b"], 2, 0)
    assert {"started", "last_reload"} <= data.keys()
    record.remove()


def test_dead_process(state_folder: Path) -> None:
    """What a process left that is gone, or whose id another one has, is ignored and removed."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    for pid, mark in ((ended.pid, "1"), (os.getpid(), "1")):
        record = Record(attrs.evolve(open_record().state, pid=pid, mark=mark, listen="127.0.0.1:1"))
        record.open()
        assert record.path is not None
        assert [each.state.mark for each in find_instances(any_config=True)] == [birth_mark(os.getpid())]
        assert not record.path.exists()


def test_zombie_is_dead() -> None:
    """A process that has ended but was not waited for counts as ended."""
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth_mark(child.pid) is None


def test_name_of_a_process_with_odd_characters(tmp_path: Path) -> None:
    """A program may be called anything without hiding when it started."""
    odd = tmp_path / ") S 1 (x"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as child:
        mark = birth_mark(child.pid)
        child.kill()
    assert mark is not None
    assert mark.isdigit()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', '{"pid": "x", "later": true}', "\x00"])
def test_unreadable_file(state_folder: Path, text: str) -> None:
    """What cannot be read as a state is passed over."""
    (make_folder() / "broken.1.json").write_text(text)
    record = open_record()
    assert len(find_instances()) == 1
    record.remove()


def test_folder_of_another_make(state_folder: Path, tmp_path: Path) -> None:
    """A link or a file in the folder's place is refused; the service goes on without a record."""
    (tmp_path / "elsewhere").mkdir()
    place = state_folder / "disagg-kernel"
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match="not a folder of this user"):
        make_folder()
    record = open_record()
    record.update(reloads=1)
    record.remove()
    assert record.path is None
    assert not list((tmp_path / "elsewhere").iterdir())
    place.unlink()
    place.write_text("")
    with pytest.raises(Failure, match="not a folder of this user"):
        make_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away, which only root can")
def test_folder_of_another_user(state_folder: Path) -> None:
    """A folder that another user has made is refused."""
    place = state_folder / "disagg-kernel"
    place.mkdir()
    os.chown(place, 12345, 12345)
    with pytest.raises(Failure, match="not a folder of this user"):
        make_folder()


def test_folder_that_was_open(state_folder: Path) -> None:
    """A folder that others could look into is closed to them."""
    place = state_folder / "disagg-kernel"
    place.mkdir(mode=0o755)
    assert make_folder().stat().st_mode & 0o777 == 0o700


def test_folder_without_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder of the session the one for temporary files is used, under the user's number."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert make_folder() == tmp_path / f"disagg-kernel-{os.geteuid()}"


def test_disk_that_is_full(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that cannot be written costs no reload: the last one that could be stays."""
    record = open_record()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        record.update(reloads=1)
    assert [each.state.reloads for each in find_instances()] == [0]
    record.update(reloads=2)
    assert [each.state.reloads for each in find_instances()] == [2]
    record.remove()
