# SPDX-License-Identifier: MIT
# A program that knows nothing of txmap: it maps a file and stores through the mapping.
#
#   ledger.py FILE      reads lines: "put TEXT" stores TEXT at the beginning and at the end of the file; "get" only looks.
#                       Answers each with what the two places hold in its memory.
import mmap
import sys

with open(sys.argv[1], 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0)
print('ready', flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == 'put':
        m[0:4] = m[-4:] = words[1].encode()
    print(m[0:4].decode(), m[-4:].decode(), flush=True)
