"""Where mbx keeps its files, from every sort of environment."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.core.limits import SOCKET_PATH_MAX_BYTES
from mbx.paths import Paths, check_folder, make_folder, printable, quoted


def test_mbx_home_decides_and_run_lies_in_it() -> None:
    paths = Paths.from_environ({"MBX_HOME": "/srv/mbx", "HOME": "/home/x"})
    assert paths.home() == "/srv/mbx"
    assert paths.socket_path() == "/srv/mbx/run/mbx.sock"
    assert paths.store_path() == "/srv/mbx/store.db"
    assert paths.host_key_path() == "/srv/mbx/host.key"
    assert paths.tls_key_path() == "/srv/mbx/tls.key"
    assert paths.lock_path() == "/srv/mbx/daemon.lock"
    assert paths.log_path() == "/srv/mbx/daemon.log"
    assert paths.start_lock_path() == "/srv/mbx/run/start.lock"


def test_mbx_run_moves_the_run_folder_only() -> None:
    paths = Paths.from_environ({"MBX_HOME": "/srv/mbx", "MBX_RUN": "/srv/run"})
    assert (paths.home(), paths.run_dir()) == ("/srv/mbx", "/srv/run")


def test_the_default_home_follows_home_and_ignores_xdg() -> None:
    environ = {"HOME": "/srv/x", "XDG_DATA_HOME": "/srv/y", "XDG_RUNTIME_DIR": "/srv/z"}
    assert Paths.from_environ(environ) == Paths(
        "/srv/x/.local/share/mbx", "/srv/x/.local/share/mbx/run"
    )


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}], ids=["unset", "empty"])
def test_without_home_the_password_database_is_asked(environ: dict[str, str]) -> None:
    home = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    assert Paths.from_environ(environ).home() == os.path.join(home, ".local", "share", "mbx")


def test_the_password_database_is_loaded_only_when_it_is_needed() -> None:
    check = (
        "import sys; before = 'pwd' in sys.modules; from mbx.paths import Paths;"
        "Paths.from_environ({'HOME': '/srv/x'});"
        "sys.exit('pwd' in sys.modules and not before)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", check], check=False, timeout=15)
    assert done.returncode == 0


def test_empty_variables_count_as_unset() -> None:
    paths = Paths.from_environ({"MBX_HOME": "", "MBX_RUN": "", "HOME": "/srv/x"})
    assert paths.run_dir() == "/srv/x/.local/share/mbx/run"


def test_a_link_and_its_target_are_one_installation(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    by_link = Paths.from_environ({"MBX_HOME": str(tmp_path / "link")})
    assert by_link == Paths.from_environ({"MBX_HOME": str(tmp_path / "real" / ".." / "real" / "")})
    assert hash(by_link) == hash(Paths.from_environ({"MBX_HOME": str(tmp_path / "real")}))


@pytest.mark.parametrize("path", ["x", "./x", "../x", "~/x", ".", " /srv/x"])
@pytest.mark.parametrize("variable", ["MBX_HOME", "MBX_RUN", "HOME"])
def test_a_relative_path_is_refused_and_its_variable_named(variable: str, path: str) -> None:
    """It would be another installation in each folder."""
    environ = {"HOME": "/srv/x", variable: path}
    with pytest.raises(MbxError, match=f"{variable} is relative") as refused:
        Paths.from_environ(environ)
    assert refused.value.code == "usage"
    assert refused.value.next_step == f"set {variable} to an absolute path"


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_socket_path_over_the_kernels_limit_moves_to_a_short_run_folder(extra: int) -> None:
    fixed = len("/srv//run/mbx.sock")
    home = "/srv/" + "h" * (SOCKET_PATH_MAX_BYTES - fixed + extra)
    paths = Paths.from_environ({"MBX_HOME": home})
    if extra <= 0:
        assert paths.run_dir() == f"{home}/run"
    else:
        assert paths.run_dir().startswith(os.path.realpath("/tmp") + f"/mbx-{os.getuid()}-")
    assert len(os.fsencode(paths.socket_path())) <= SOCKET_PATH_MAX_BYTES
    assert paths.home() == home


def test_the_limit_is_counted_in_bytes_not_characters() -> None:
    home = "/srv/" + "ü" * 60
    assert Paths.from_environ({"MBX_HOME": home}).run_dir() != f"{home}/run"


def test_the_short_run_folder_is_given_to_the_daemon_unchanged() -> None:
    paths = Paths.from_environ({"MBX_HOME": "/srv/" + "h" * 200})
    again = Paths.from_environ({"MBX_HOME": paths.home(), "MBX_RUN": paths.run_dir()})
    assert again == paths


def test_two_long_homes_have_two_run_folders() -> None:
    first, second = ("/srv/" + letter * 200 for letter in "ab")
    runs = {Paths.from_environ({"MBX_HOME": home}).run_dir() for home in (first, second)}
    assert len(runs) == 2


@pytest.mark.parametrize("trap", ["link", "file", "open", "foreign"])
def test_a_short_run_folder_that_is_not_ours_alone_is_refused_by_name(
    tmp_path: Path, trap: str
) -> None:
    environ = {"MBX_HOME": str(tmp_path / ("h" * 200))}
    place = Path(Paths.from_environ(environ).run_dir())
    try:
        if trap == "link":
            place.symlink_to(tmp_path)
        elif trap == "file":
            place.write_text("")
        elif trap == "open":
            place.mkdir(mode=0o700)
            place.chmod(0o755)
        else:
            if os.geteuid() != 0:
                pytest.skip("needs the rights of root")
            place.mkdir(mode=0o700)
            os.chown(place, 65534, 65534)
        with pytest.raises(MbxError) as refused:
            Paths.from_environ(environ)
    finally:
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
    assert refused.value.code == "daemon-unreachable"
    assert str(place) in refused.value.message
    assert refused.value.next_step is not None


def test_folders_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        make_folder(str(tmp_path / "a" / "b"))
    finally:
        assert os.umask(old_mask) == 0
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_open_to_others_is_refused_with_the_command_that_closes_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "my run"
    place.mkdir()
    place.chmod(0o750)
    with pytest.raises(MbxError, match="mode 0750") as refused:
        check_folder(str(place))
    assert refused.value.next_step == f"chmod 700 '{place}'"


def test_a_folder_of_other_things_is_not_to_be_closed(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("x")
    tmp_path.chmod(0o1777)
    with pytest.raises(MbxError, match="mode 1777") as refused:
        check_folder(str(tmp_path))
    assert "a folder of your own" in str(refused.value.next_step)
    (tmp_path / "start.lock").write_text("")
    with pytest.raises(MbxError) as refused:
        check_folder(str(tmp_path))
    assert refused.value.next_step == f"chmod 700 {tmp_path}"


@pytest.mark.root
def test_nothing_is_made_in_another_users_home(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(MbxError, match="belongs to user 65534"):
        make_folder(str(tmp_path / "share" / "mbx"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cli", "session_id"),
    [("claude", "../../x"), ("a/b", "c\0d"), ("x", "\udcff"), ("", "ü" * 300)],
)
def test_no_session_id_leaves_the_sessions_folder(cli: str, session_id: str) -> None:
    file = Paths("/srv/x", "/srv/x/run").session_file(cli, session_id)
    assert os.path.dirname(file) == "/srv/x/run/sessions"
    assert len(os.path.basename(file)) == 64 + len(".json")


def test_cli_and_session_id_are_kept_apart_in_the_file_name() -> None:
    paths = Paths("/srv/x", "/srv/x/run")
    assert paths.session_file("ab", "c") != paths.session_file("a", "bc")


def test_paths_cannot_be_changed() -> None:
    paths = Paths("/srv/x", "/srv/x/run")
    with pytest.raises(AttributeError):
        paths._home = "/srv/y"
    assert paths.home() == "/srv/x"


@pytest.mark.parametrize("text", ["/srv/x", "a b", "it's", "", "$HOME;`x`", "ü", "a\nb"])
def test_a_quoted_path_is_one_word_of_a_shell(text: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"printf %s {quoted(text)}"], capture_output=True, check=True, timeout=15
    )
    assert done.stdout.decode() == text


def test_a_path_that_is_no_utf8_is_shown_with_escapes() -> None:
    assert printable("/home/ä") == "/home/ä"
    assert printable(os.fsdecode(b"/home/\xff")) == "/home/\\xff"
