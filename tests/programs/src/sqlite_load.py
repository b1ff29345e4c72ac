# SPDX-License-Identifier: MIT
# SQLite under load, its file mapped, and its verifier.
#
#   sqlite_load.py write FILE COUNT MODE   transactions in that journal mode; prints "ack NUMBER" once one is committed
#   sqlite_load.py verify FILE             prints how many are there
import os
import sqlite3
import sys

d = sqlite3.connect(sys.argv[2], isolation_level=None)
d.execute('pragma mmap_size=100000000')
if sys.argv[1] == 'write':
    d.execute('pragma synchronous=full')
    d.execute('pragma journal_mode=' + sys.argv[4])
    d.execute('create table if not exists t(a integer primary key, b text, c integer)')
    start = d.execute('select count(*) from t').fetchone()[0]
    for i in range(start, start + int(sys.argv[3])):
        d.execute('begin immediate')
        d.execute('insert into t values(?, ?, 0)', (i, 'value %d ' % i * (1 + i % 100)))
        d.execute('update t set c = c + 1 where a between ? and ?', (i // 2, i // 2 + 20))
        d.execute('delete from t where a < 0')
        d.execute('commit')
        os.write(1, b'ack %d\n' % i)
else:
    ok = d.execute('pragma integrity_check').fetchone()[0]
    n = bad = 0
    for a, b in d.execute('select a, b from t order by a'):
        bad += a != n or b != 'value %d ' % a * (1 + a % 100)
        n += 1
    print('transactions', n, 'bad', bad, ok)
    sys.exit(bad != 0 or ok != 'ok')
