# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A fixed number of system calls, in threads and in a forked child, on files in --directory.

Its truth: {path: [reads, read bytes, writes, written bytes]} of this process; and of the child what /proc/self/io said of it, and
what it read and wrote afterwards.
"""

import mmap
import os
import threading

import common

COLD_BYTES = 8 << 20


class Files:
    """Calls, and what they add up to by path."""

    def __init__(self):
        self.by_path = {}

    def read(self, path, data):
        row = self.by_path.setdefault(path, [0, 0, 0, 0])
        row[0] += 1
        row[1] += len(data)
        return data

    def wrote(self, path, size):
        row = self.by_path.setdefault(path, [0, 0, 0, 0])
        row[2] += 1
        row[3] += size


def write_and_read(files, path, loops):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    files.wrote(path, os.write(fd, b"x" * 10000))
    files.wrote(path, os.pwrite(fd, b"y" * 77, 5))
    files.wrote(path, os.writev(fd, [b"z" * 10, b"w" * 20]))
    for i in range(loops):
        files.read(path, os.pread(fd, 4096, i))
    os.lseek(fd, 0, os.SEEK_SET)
    while files.read(path, os.read(fd, 3000)):
        pass
    buffers = [bytearray(100), bytearray(200)]
    files.read(path, b"x" * os.preadv(fd, buffers, 0))
    os.fsync(fd)
    os.close(fd)


def errors():
    for _ in range(7):
        try:
            os.read(987, 10)
        except OSError:
            pass
        try:
            os.open("/nonexistent/file", os.O_RDONLY)
        except OSError:
            pass


def send(files, source, target):
    a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    files.read(source, b"x" * os.sendfile(b, a, 0, 5000))
    os.close(a)
    os.close(b)


def threads(files, path):
    """Each thread has files of its own; two threads of one process may read at a time."""
    mine = [Files() for _ in range(3)]
    started = [threading.Thread(target=write_and_read, args=(f, "%s.%d" % (path, i), 500)) for i, f in enumerate(mine)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    for f in mine:
        files.by_path.update(f.by_path)


def in_child(path):
    """What /proc/self/io says in a child that writes and reads, and what it did after it was asked."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        write_and_read(Files(), path, 100)
        fd = os.open("/proc/self/io", os.O_RDONLY)
        text = os.read(fd, 4096)
        os.write(w, text)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(w)
    text = os.read(r, 4096)
    os.close(r)
    said = dict(line.split(": ") for line in text.decode().splitlines())
    return {"pid": pid, "io": {k: int(v) for k, v in said.items()}, "said_bytes": len(text)}


def read_bytes():
    with open("/proc/self/io") as f:
        return int(dict(line.split(": ") for line in f)["read_bytes"])


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cold(read, mapped):
    """Two files that are not in the page cache, one read and one mapped: bytes that came from the disk for each."""
    before = read_bytes()
    fd = os.open(read, os.O_RDONLY)
    size = 0
    while True:
        data = os.read(fd, 1 << 20)
        size += len(data)
        if not data:
            break
    os.close(fd)
    middle = read_bytes()
    fd = os.open(mapped, os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:
        touched = sum(memory[i] for i in range(0, len(memory), 4096))
    os.close(fd)
    return {"read": middle - before, "mapped": read_bytes() - middle, "size": size, "touched": touched}


def main():
    p = common.parser(__doc__)
    p.add_argument("--directory", required=True)
    args = p.parse_args()
    path = os.path.join(os.path.realpath(args.directory), "")
    files = Files()
    for name in ("cold", "mapped"):
        with open(path + name, "wb") as f:
            f.write(os.urandom(COLD_BYTES))
        drop(path + name)
    common.wait(args)
    write_and_read(files, path + "plain", 1000)
    write_and_read(files, path + "new\nline <b>\u00e4\x1b[31m", 10)
    threads(files, path + "thread")
    errors()
    send(files, path + "plain", path + "sent")
    child = in_child(path + "child")
    disk = cold(path + "cold", path + "mapped")
    common.write(args, {"files": files.by_path, "child": child, "disk": disk, "path": path})


if __name__ == "__main__":
    main()
