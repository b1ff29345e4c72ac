#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A reader of txmap's journals, written from docs/journal.md alone.

    read_journal.py JOURNAL FILE    replay the journal of one file into it
    read_journal.py STUB            find the group's journal, and replay it into its files

It does what a recovery does to the files, and removes nothing. Python has no XXH3: sums are not computed, only compared where one
frame repeats another's. So it takes a torn frame for a whole one, and is for journals that were not cut off.
"""
import os
import struct
import sys

HEADER = struct.Struct("<8sIIQQQQQQQQ256sIIQ160s")
FRAME = struct.Struct("<8sQQQQQQQQQQIIQQQQ")
RUN = struct.Struct("<QII")
NAME = struct.Struct("<QQQII")
ONE, GROUP, STUB = 0, 1, 2
COMMIT, HAS_BASE = 1, 2
BYTES, BASE, SIZE, NAMED = 0, 1, 2, 4
UNLINKED = 1
START, ALIGN = 8192, 512


class Refused(Exception):
    """Nothing was changed."""


def need(what, why):
    if not what:
        raise Refused(why)


def text(raw):
    need(raw.endswith(b"\0") and raw.count(b"\0") == 1 and len(raw) >= 2, "a path that is none")
    return os.fsdecode(raw[:-1])


class Header:
    def __init__(self, raw):
        (self.magic, self.version, self.len, self.sum, self.generation, self.salt, self.base_txid, self.dev, self.ino,
         self.igen, self.size, self.name, self.kind, zero1, self.group, zero2) = HEADER.unpack(raw)
        self.valid = self.magic == b"\nTXJRNL1" and self.len == 512
        if self.valid:
            need((self.version, self.kind) in ((1, ONE), (2, GROUP), (2, STUB)), "a version or kind not known here")
            need(not zero1 and not any(zero2), "reserved bytes are in use")


class Frame:
    def __init__(self, raw, offset):
        (self.magic, self.generation, self.salt, self.offset, self.prev, self.seq, self.durable_seq, self.attempt, self.txid,
         self.size, self.cut, self.len, self.flags, self.payload_sum, zero1, zero2, self.sum) = FRAME.unpack_from(raw, offset)
        self.payload = raw[offset + FRAME.size:offset + FRAME.size + self.len]
        self.stop = (offset + FRAME.size + self.len + ALIGN - 1) // ALIGN * ALIGN
        self.whole = self.offset == offset and len(self.payload) == self.len and not zero1 and not zero2

    def runs(self):
        at = 0
        while at < self.len:
            need(self.len - at >= RUN.size, "a run that leaves its frame")
            off, n, flags = RUN.unpack_from(self.payload, at)
            at += RUN.size
            need(n <= self.len - at, "a run that leaves its frame")
            yield flags >> 8, flags & 255, off, self.payload[at:at + n]
            at += n


def header_of(raw):
    slots = [Header(raw[at:at + 512]) for at in (0, 4096)]
    valid = [s for s in slots if s.valid]
    need(valid, "no valid header")
    return max(valid, key=lambda s: s.generation)


def commits_of(raw, h):
    """Lists of frames, each list a complete commit."""
    at, prev, done, open_ = START, h.salt, [], []
    while at + FRAME.size <= len(raw):
        f = Frame(raw, at)
        if (f.magic != b"\4TXFRAME" or not f.whole or (f.generation, f.salt, f.prev) != (h.generation, h.salt, prev)
                or f.seq != len(done) + 1):
            break
        open_.append(f)
        if f.flags & COMMIT:
            done.append(open_)
            open_ = []
        at, prev = f.stop, f.sum
    return done


class Names:
    """Who a group's files are; the last name counts."""

    def __init__(self, commits):
        self.name = {}
        self.part = set()
        for frames in commits:
            runs = [r for f in frames for r in f.runs()]
            for file, kind, off, raw in runs:
                need(1 <= file <= 65535, "a file number that cannot be")
                need(kind in (BYTES, BASE, SIZE, NAMED), "a kind of run not known here")
                if kind == NAMED:
                    dev, ino, igen, flags, zero = NAME.unpack_from(raw)
                    need(off == 0 and zero == 0, "a bad name")
                    self.name[file] = (dev, ino, igen, flags, text(raw[NAME.size:]))
            sizes = [file for file, kind, _, _ in runs if kind == SIZE]
            part = {file for file, kind, _, _ in runs if kind != NAMED}
            need(len(sizes) == len(set(sizes)) and set(sizes) == part, "not just one size of each file")
            need(part <= set(self.name), "a file without a name")
            self.part |= part

    def open(self, directory):
        """The files that take part, all of them, before any is changed; None: unlinked."""
        files = {}
        for file in self.part:
            dev, ino, igen, flags, path = self.name[file]
            if flags & UNLINKED:
                files[file] = None
                continue
            need(os.path.exists(os.path.join(directory, path)), path + " is missing")
            f = open(os.path.join(directory, path), "r+b", buffering=0)
            need(os.fstat(f.fileno()).st_ino == ino, path + " is another file now")
            files[file] = f
        return files


def set_size(f, size, cut):
    need(cut <= size, "a cut beyond the size")
    if os.fstat(f.fileno()).st_size > cut:
        f.truncate(cut)
    f.truncate(size)


def write(f, size, off, raw):
    raw = raw[:max(size - off, 0)]
    while raw:
        n = os.pwrite(f.fileno(), raw, off)
        off, raw = off + n, raw[n:]


def replay(commits, files, is_group):
    for frames in commits:
        commit = frames[-1]
        runs = [r for f in frames for r in f.runs()]
        if is_group:
            sizes = {file: (off, *struct.unpack("<Q", raw)) for file, kind, off, raw in runs if kind == SIZE}
        else:
            sizes = {0: (commit.size, commit.cut)}
        need(bool(commit.flags & HAS_BASE) == any(kind == BASE for _, kind, _, _ in runs), "the BASE flag is wrong")
        for file, (size, cut) in sizes.items():
            if files[file]:
                set_size(files[file], size, cut)
        for wanted in (BASE, BYTES):
            for file, kind, off, raw in runs:
                if kind == wanted and files[file]:
                    write(files[file], sizes[file][0], off, raw)
    for f in files.values():
        if f:
            os.fsync(f.fileno())
            f.close()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def main(argv):
    raw = read(argv[1])
    h = header_of(raw)
    if h.kind == STUB:
        record = Frame(raw, START)
        need(record.magic == b"\4TXGROUP" and record.whole and record.salt == h.group, "the stub's record is damaged")
        journal = os.path.join(os.path.dirname(argv[1]) or ".", text(record.payload))
        need(os.path.exists(journal), "the group's journal is lost")
        raw = read(journal)
        group = header_of(raw)
        need(group.kind == GROUP and group.group == h.group, "the journal is another group's")
        commits = commits_of(raw, group)
        files = Names(commits).open(os.path.dirname(journal) or ".")
        replay(commits, files, True)
    else:
        need(h.kind == ONE and len(argv) == 3, "whose journal is it?")
        commits = commits_of(raw, h)
        f = open(argv[2], "r+b", buffering=0)
        need(os.fstat(f.fileno()).st_ino == h.ino, "the journal is another file's")
        replay(commits, {0: f}, False)
    print(len(commits), "commits")


if __name__ == "__main__":
    try:
        main(sys.argv)
    except Refused as why:
        print("refused:", why, file=sys.stderr)
        sys.exit(3)
