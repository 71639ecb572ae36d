"""A disk on which a process is killed, or the power is cut, at a chosen moment."""

import os
import pathlib

_CALLS = (
    (os, "replace"),
    (os, "fsync"),
    (os, "write"),
    (os, "link"),
    (os, "open"),
    (os, "ftruncate"),
    (pathlib.Path, "write_bytes"),
    (pathlib.Path, "mkdir"),
    (pathlib.Path, "unlink"),
)


class Killed(BaseException):
    """The process is no more: nothing that it does after this reaches the disk."""


class FailingDisk:
    """Counts the calls that change the disk, and kills at one of them.

    Args:
      monkeypatch: pytest's.
      at: number of the call, from 1; None lets all through.
      when: "before" the call, "half" way through a write, or "after" the call.
    """

    def __init__(self, monkeypatch, at=None, when="before"):
        self.at, self.when, self.count, self.dead = at, when, 0, False
        self._synced, self._names = {}, []
        for owner, name in _CALLS:
            original = getattr(owner, name)
            monkeypatch.setattr(owner, name, self._wrapped(name, original))

    def cut_power(self):
        """Take back what no fsync had confirmed: half of the unconfirmed bytes of every file, and renames."""
        for source, target in reversed(self._names):
            if os.path.exists(target):
                os.rename(target, source)
        for path, (inode, size) in self._synced.items():
            for found in pathlib.Path(path).parent.iterdir():
                if found.stat().st_ino == inode and found.stat().st_size > size:
                    os.truncate(found, size + (found.stat().st_size - size) // 2)

    def _wrapped(self, name, original):
        def call(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return original(*arguments, **options)
            if self.dead:
                raise Killed
            self.count += 1
            chosen = self.count == self.at
            if chosen and self.when == "half" and name in ("write", "write_bytes"):
                target, data = arguments
                self._note(name, arguments)
                original(target, data[: len(data) // 2])
                self._die()
            if chosen and self.when != "after":
                self._die()
            self._note(name, arguments)
            try:
                result = original(*arguments, **options)
                if name == "write_bytes":
                    self._synced[str(arguments[0])] = (arguments[0].stat().st_ino, 0)
            finally:
                if chosen:
                    self._die()
            return result

        return call

    def _note(self, name, arguments):
        """Keep in mind what is on the disk for certain."""
        if name == "replace":
            self._names.append(tuple(map(str, arguments[:2])))
        if name == "write":
            path = os.readlink(f"/proc/self/fd/{arguments[0]}")
            status = os.fstat(arguments[0])
            self._synced.setdefault(path, (status.st_ino, status.st_size))
        if name == "fsync":
            path, status = os.readlink(f"/proc/self/fd/{arguments[0]}"), os.fstat(arguments[0])
            if os.path.isdir(path):
                self._names = [one for one in self._names if os.path.dirname(one[1]) != path]
            else:
                self._synced = {k: v for k, v in self._synced.items() if v[0] != status.st_ino}

    def _die(self):
        self.dead = True
        raise Killed
