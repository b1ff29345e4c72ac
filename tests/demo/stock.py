# SPDX-License-Identifier: MIT
#   stock.py fill     2000 items into stock.gdbm, and a sync
#   stock.py update   changes items and adds new ones, for ever, and never syncs
import dbm.gnu
import sys

d = dbm.gnu.open('stock.gdbm', 'c')
if sys.argv[1] == 'fill':
    for i in range(2000):
        d['item%d' % i] = '10 ' * 20
    d.sync()
    d.close()
else:
    print('ready', flush=True)
    i = 0
    while True:
        d['item%d' % (i * 7 % 3000)] = '%d ' % i * 40
        i += 1
