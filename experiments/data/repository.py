"""A public repository at one commit, read from a clone."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True)
class Repository:
    """A public repository at one commit."""

    name: str  # `owner/name` on GitHub.
    commit: str  # The full hash, or as much of it as identifies the commit.
    folder: pathlib.Path  # Of a clone, with a work tree or bare.

    @classmethod
    def opened(
        cls, name: str, commit: str, *, source: str | None, cache: pathlib.Path
    ) -> Repository:
        """The clone that is given, or one that is made in the cache folder; ValueError if none."""
        folder = pathlib.Path(source) if source else cache / name.replace("/", "+")
        found = cls(name, commit, folder)
        if source is None and not folder.exists():
            url = f"https://github.com/{name}"
            sys.stderr.write(f"cloning {url}\n")
            cloned = subprocess.run(["git", "clone", "--quiet", "--bare", url, str(folder)])
            if cloned.returncode:
                raise ValueError(f"{url}: cannot be cloned; give a clone of it with --source.")
        if found._run("cat-file", "-t", commit).strip() != b"commit":
            raise ValueError(f"{folder}: no clone of {name} with the commit {commit}.")
        return found

    def paths(self, *under: str) -> list[str]:
        """Every file of the commit, or those in some folders, sorted."""
        # Links and submodules are not files.
        lines = self._run("ls-tree", "-r", "-z", self.commit, "--", *under).decode().split("\0")
        entries = (line.split("\t", 1) for line in lines if line)
        return sorted(path for kind, path in entries if kind.startswith("100"))

    def read(self, paths: Sequence[str]) -> Iterator[bytes]:
        """The contents of some files, in their order; ValueError where one is not in the clone."""
        command = ["git", "-C", str(self.folder), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            for path in paths:
                process.stdin.write(f"{self.commit}:{path}\n".encode())
                process.stdin.flush()
                header = process.stdout.readline().split()
                if len(header) != 3 or header[1] != b"blob":
                    raise ValueError(f"{self.name}: {path} is not in {self.folder}.")
                yield process.stdout.read(int(header[2]))
                process.stdout.read(1)
            process.stdin.close()

    def _run(self, *arguments: str) -> bytes:
        if not self.folder.exists():
            raise ValueError(f"{self.folder}: there is no such folder.")
        whole = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(whole, capture_output=True).stdout

    @property
    def reference(self) -> str:
        """The repository and its commit, for a file's provenance."""
        return f"{self.name} @ {self.commit}"
