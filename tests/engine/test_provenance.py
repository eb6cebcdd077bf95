"""The commit in a record, against git itself."""

import shutil
import subprocess

import pytest

from shiftbed.engine.provenance import commit, provenance

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *words):
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    command = ["git", *own, "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_commit_is_what_git_says(checkout, tmp_path):
    first = git(checkout, "rev-parse", "HEAD")
    (checkout / "deep" / "er").mkdir(parents=True)
    assert commit(checkout / "deep" / "er") == first
    git(checkout, "pack-refs", "--all")
    assert commit(checkout) == first
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    assert commit(checkout) == git(checkout, "rev-parse", "HEAD") != first
    git(checkout, "worktree", "add", "-q", "-b", "side/branch", str(tmp_path / "tree"), first)
    assert commit(tmp_path / "tree") == first
    git(checkout, "pack-refs", "--all")
    assert commit(tmp_path / "tree") == first
    git(checkout, "checkout", "-q", "--detach", first)
    assert commit(checkout) == first


def test_there_is_none_outside_of_a_checkout_or_before_the_first_commit(tmp_path):
    assert commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert commit(tmp_path) is None
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / ".git").write_text("something else")
    assert commit(tmp_path / "odd") is None


def test_a_process_that_changes_its_folder_says_so(checkout, tmp_path, monkeypatch):
    monkeypatch.chdir(checkout)
    assert provenance()["commit"] == git(checkout, "rev-parse", "HEAD")
    monkeypatch.chdir(tmp_path)
    assert provenance()["commit"] is None
