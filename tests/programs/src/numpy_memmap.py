# SPDX-License-Identifier: MIT
# numpy.memmap: the descriptor is closed right after mmap, one file has several mappings, MAP_PRIVATE beside
# MAP_SHARED, stores shared with a forked child.
import os
import numpy as np

n = 1 << 20
a = np.memmap('a.dat', dtype='f8', mode='w+', shape=(n,))
a[:] = np.arange(n)
a.flush()
del a

b = np.memmap('a.dat', dtype='f8', mode='r+', shape=(n // 2, 2))
b[::7, 0] *= 2
b.flush()
c = np.memmap('a.dat', dtype='f8', mode='c', shape=(n,))
c[:] = 0
d = np.memmap('a.dat', dtype='f8', mode='r+', offset=8192 * 8 + 16, shape=(100,))
d[:] = -1
x = np.fromfile('a.dat')
print(x[8192 + 2], x[-1], x[0:20:7])

m = np.lib.format.open_memmap('b.npy', mode='w+', dtype='i4', shape=(1000, 1000))
m[5, :] = np.arange(1000)
pid = os.fork()
if pid == 0:
    m[6, :] = 7
    os._exit(0)
os.waitpid(pid, 0)
print((m[6] == 7).all())
m.flush()
del m
y = np.load('b.npy')
print(y[5, 999], y[6, 0])

e = np.memmap('g.dat', dtype='i8', mode='w+', shape=(1000,))
e[:] = 1
e.flush()
e2 = np.memmap('g.dat', dtype='i8', mode='r+', shape=(5000,))
e2[4999] = 5
print(e2[0])
e[1] = 9
print(e2[1], os.path.getsize('g.dat'))
