#!/bin/bash
# SPDX-License-Identifier: MIT
# xfs_io: scripted mmap, stores, msync, mremap, truncate, and read/write beside the mapping.
. "$(dirname "$0")/lib.sh"
need xfs_io

t_coherence() {
	run xfs_io -f -c 'truncate 256k' -c 'mmap -rw 0 256k' -c 'mwrite -S 0x5a 4096 8192' -c 'mread -v 4096 16' \
		-c 'msync -s 0 16384' -c 'pwrite -q -S 0x11 4096 100' -c 'mread -v 4096 16' -c 'mwrite -S 0x77 4200 50' \
		-c 'pread -qv 4190 32' -c 'truncate 300k' -c 'mremap -m 300k' -c 'mwrite -S 9 290000 4' -c munmap \
		-c 'pread -qv 290000 8' -c fsync x.dat
	bytes x.dat
}
t_no_sync() {
	run xfs_io -f -c 'truncate 100000' -c 'mmap -rw 0 128k' -c 'mwrite -S 0x21 99990 10' -c 'mwrite -S 0x22 0 1' y.dat
	bytes y.dat
	run xfs_io -c 'mmap -r 0 100000' -c 'mread -v 99984 16' -c 'pread -qv 99984 16' y.dat
}
t_shrink_and_grow() {
	run xfs_io -f -c 'pwrite -q -S 0x33 0 64k' -c 'mmap -rw 0 64k' -c 'mwrite -S 0x44 0 64k' -c 'truncate 5000' \
		-c 'truncate 64k' -c 'mread -v 4992 32' -c 'mread -v 60000 16' -c 'msync -s' z.dat
	bytes z.dat
}
t_append_and_holes() {
	run xfs_io -f -c 'pwrite -q -S 1 0 10000' -c 'mmap -rw 0 12k' -c 'pwrite -q -S 2 10000 5000' -c 'mread -v 9992 16' \
		-c 'fpunch 4096 4096' -c 'mread -v 4090 16' -c 'fzero 100 50' -c 'mread -v 96 16' -c 'falloc 0 40000' \
		-c 'fsync' h.dat
	bytes h.dat
}
for t in coherence no_sync shrink_and_grow append_and_holes; do
	same $t
done
done_same
