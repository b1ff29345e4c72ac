# SPDX-License-Identifier: MIT
# gdbm under load, and its verifier.
#
#   gdbm_load.py write FILE COUNT   rounds of 20 updates and a sync; prints "ack ROUND" once it is synced
#   gdbm_load.py verify FILE        every value is made of its key; prints the count and the last round
import dbm.gnu
import os
import random
import sys

if sys.argv[1] == 'write':
    d = dbm.gnu.open(sys.argv[2], 'c')
    random.seed(1)
    for i in range(int(sys.argv[3])):
        for j in range(20):
            k = 'k%d' % random.randrange(3000)
            if j % 7 == 6:
                if k in d:
                    del d[k]
            else:
                d[k] = (k + '-') * (1 + (i + j) % 60)
        d['round'] = 'round-%d' % i
        d.sync()
        os.write(1, b'ack %d\n' % i)
    d.close()
else:
    d = dbm.gnu.open(sys.argv[2], 'r')
    n = bad = 0
    last = d[b'round'] if b'round' in d else b'none'
    k = d.firstkey()
    while k is not None and n < 20000:
        bad += d[k].replace(k + b'-', b'') != b'' and k != b'round'
        n += 1
        k = d.nextkey(k)
    print('entries', n, 'bad', bad, last.decode())
    sys.exit(1 if bad or n >= 20000 else 0)
