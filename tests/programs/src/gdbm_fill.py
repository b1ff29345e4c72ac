# SPDX-License-Identifier: MIT
# Fill a gdbm file, delete a third, reorganize (a new file is renamed over), sync, close.
import dbm.gnu
import sys

d = dbm.gnu.open(sys.argv[1], sys.argv[2])
n = int(sys.argv[3])
for i in range(n):
    d['k%d' % i] = ('x%d-' % i) * (1 + i % 97)
for i in range(0, n, 3):
    del d['k%d' % i]
d.reorganize()
d.sync()
print(len(d))
d.close()
