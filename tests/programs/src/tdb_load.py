# SPDX-License-Identifier: MIT
# tdb under load, and its verifier: an fcntl lock for each chain; fallocate and a new mapping to grow.
#
#   tdb_load.py write FILE COUNT [FLAG...]   rounds of 20 updates; prints "ack ROUND" once it is committed
#   tdb_load.py verify FILE                  every value is made of its key; prints the count and the last round
#
# FLAG: tx (each round is a transaction), leave (the map is live at exit), MUTEX_LOCKING, or a name of the module's.
import os
import random
import sys

import tdb

NOEXIST = 8  # of enum TDB_ERROR; the module does not have it

if sys.argv[1] == 'write':
    words = sys.argv[4:]
    flags = 0
    for name in words:
        if name not in ('tx', 'leave'):
            flags |= 4096 if name == 'MUTEX_LOCKING' else getattr(tdb, name)
    d = tdb.Tdb(sys.argv[2], 0, flags, os.O_RDWR | os.O_CREAT, 0o600)
    random.seed(1)
    for i in range(int(sys.argv[3])):
        if 'tx' in words:
            d.transaction_start()
        for j in range(20):
            k = b'k%d' % random.randrange(3000)
            if j % 7 == 6:
                if k in d:
                    try:
                        d.delete(k)
                    except RuntimeError as e:
                        if e.args[0] != NOEXIST:  # another process has deleted it since
                            raise
            else:
                d.store(k, (k + b'-') * (1 + (i + j) % 60))
        d.store(b'round', b'round-%d' % i)
        if 'tx' in words:
            d.transaction_commit()
        os.write(1, b'ack %d\n' % i)
    if 'leave' in words:
        os._exit(0)
    d.close()
else:
    d = tdb.Tdb(sys.argv[2], 0, 0, os.O_RDONLY, 0)
    n = bad = 0
    for k in d:
        n += 1
        bad += d[k].replace(k + b'-', b'') != b'' and k != b'round'
    print('entries', n, 'bad', bad, d[b'round'].decode() if b'round' in d else 'none')
    sys.exit(bad != 0)
