#!/bin/bash
# SPDX-License-Identifier: MIT
# Ordinary tools on files that are managed, with what a mapping of the same file left there: they copy, cut, sort, pack and
# compare them.
. "$(dirname "$0")/lib.sh"
for tool in xfs_io rsync vim.tiny perl cpio xz ar; do need $tool; done

# A file that was stored to through a mapping, with a hole, and no whole number of pages long.
make_file() {
	run xfs_io -f -c 'truncate 1000001' -c 'mmap -rw 0 1000001' -c 'mwrite -S 0x61 0 5000' -c 'mwrite -S 0x62 500000 100000' \
		-c 'mwrite -S 0x63 1000000 1' "$1"
}
t_copy() {
	make_file a
	run cp a b
	run cp --sparse=always a c
	run cp --reflink=auto --preserve=all a d
	run dd if=a of=b bs=1000 seek=3 count=100 conv=notrunc status=none
	run dd if=a of=c bs=4k count=10 oflag=append conv=notrunc status=none
	run sh -c 'cat a b >>d'
	run cmp a a
	run sh -c 'cmp a b; cmp a c | sed "s/line.*//"'
	run install -m 600 a e
	bytes a b c d e
}
t_size() {
	make_file a
	run truncate -s 300000 a
	run truncate -s +5000 a
	bytes a
	run fallocate -l 700000 a
	run fallocate -p -o 4096 -l 8192 a
	run fallocate -z -o 100 -l 100 a
	run fallocate -d a
	run stat -c '%n %s' a
	run wc -c a
	bytes a
	plain truncate -s 4096 b
	run shred -n 1 --random-source=a -s 4096 b
	run dd if=/dev/zero of=a bs=1 count=1 seek=999999 status=none
	bytes a
}
t_text() {
	plain sh -c 'seq 5000 -1 1 >t'
	run sort -n -o t t
	run sed -i s/7/seven/ t
	run sh -c 'echo last >>t; tail -n 3 t; head -n 2 t; grep -c seven t'
	run perl -i -pe 's/^1/one/' t
	run sh -c 'tac t >u; shuf --random-source=t t >v; split -l 1000 t part; csplit -s t 100 200; comm -12 t t | wc -l'
	run sh -c 'diff t u | sha256sum; md5sum t; cksum t; od -c t | tail -n 3; tee w <t >x'
	plain sh -c 'sha256sum *'
}
t_pack() {
	make_file a
	plain sh -c 'mkdir d; seq 1000 >d/1; ln d/1 d/2; ln -s 1 d/3'
	plain touch -d 2024-01-02 a d/1
	run tar -cf t.tar --sort=name --mtime=2024-01-02 --owner=0 --group=0 --numeric-owner -S a d
	bytes t.tar
	run sh -c 'mkdir x; tar -C x -xf t.tar; tar -df t.tar | grep -v id; true'
	run tar -rf t.tar --mtime=2024-01-02 --owner=0 --group=0 --numeric-owner d/1
	run gzip -nk t.tar
	run sh -c 'gunzip -c t.tar.gz | cmp - t.tar; xz -k0 t.tar && xz -t t.tar.xz; ar rcD lib.a a d/1; find d -type f | sort | cpio -o --quiet --reproducible >/dev/null 2>&1; true'
	plain sh -c 'sha256sum t.tar x/a x/d/* lib.a; stat -c "%n %Y" x/a x/d/1'
}
t_rsync() {
	make_file a
	run rsync a b
	run xfs_io -c 'mmap -rw 0 1000001' -c 'mwrite -S 0x64 700000 10' a
	run rsync --inplace --no-whole-file --checksum a b
	bytes a b
	run rsync -S -t a c
	plain sh -c '[ "$(stat -c %Y a)" = "$(stat -c %Y c)" ] && cmp a c && echo same'
}
t_editor() {
	plain sh -c 'seq 1 2000 >t'
	run vim.tiny -u NONE -es -c '%s/9/nine/' -c wq t
	run vim.tiny -u NONE -es -c 'set directory=. updatecount=1' -c 'g/nine/d' -c 'normal GoThe end' -c wq t
	bytes t
}
for t in copy size text pack rsync editor; do
	same $t
done
done_same
