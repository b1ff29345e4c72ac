#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap snapshot where it is hard: other users' directories, a full disk, a limit, a kill, holes, reflinks, backends that
# are no files, and programs that commit all the time.
. "$(dirname "$0")/lib.sh"

same() { cmp -s "$1" "$2" || bad "$1 is not $2"; }
nothing() { # FILE: neither it nor what it is made as is there
	[ ! -e "$1" ] || bad "$1 is there"
	[ -z "$(find "$dir" -name '.*.txmap-copy')" ] || bad "left: $(find "$dir" -name '.*.txmap-copy')"
}

t_both() { # both engines, and lazy and eager: what was stored, written, and given another size
	local load
	for load in lazy eager; do
		claim "a copy of what is stored, load=$load"
		make_file a.dat x 3M
		set="commit=msync load=$load durability=lazy"
		start
		order "open $dir/a.dat" ok; order 'map 0' ok
		order 'store 5 one' ok; order 'write 2M two' ok; order 'truncate 1M' ok; order 'truncate 4M' ok
		order 'store 100K three' ok; order 'read 3M 1' '.*'
		txmap snapshot "$pid" "$dir/out"; is 0
		holds out one 5; holds out three 102400
		[ "$(stat -c %s out)" = 4194304 ] || bad "out has $(stat -c %s out) bytes"
		[ "$(tail -c 3M out | tr -d '\0' | wc -c)" = 0 ] || bad 'what was cut away is in the copy'
		order msync ok
		same a.dat out
		order 'store 0 four' ok; order 'msync async' ok; order 'store 9 five' ok
		txmap snapshot "$pid" "$dir/out" --force; is 0; holds out four; holds out five 9
		tell 'exit 0'; ended; is 0
		rm -f out
	done
}

t_rights() { # the process's rights count, and its file's mode
	claim 'the copy is made by the process'
	make_file a.dat x 8192; chmod 604 a.dat
	mkdir -m 755 closed; mkdir open; chmod 777 open
	[ "$who" != ordinary ] || chown 65534:65534 open
	set='commit=none'
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	if [ "$who" = ordinary ]; then
		txmap snapshot "$pid" "$dir/closed/out"; is 1; errs 'create: EACCES'; one_line; nothing closed/out
		# root gives the order, the process makes the copy
		status=0 err_from=$work/.err
		env TXMAP_RUNTIME_DIR="$runtime" "$txmap" snapshot "$pid" "$dir/closed/out" >"$work/.out" 2>"$work/.err" || status=$?
		is 1; errs EACCES
		env TXMAP_RUNTIME_DIR="$runtime" "$txmap" snapshot "$pid" "$dir/open/root" >/dev/null || bad 'root is refused'
		[ "$(stat -c '%u %a' open/root)" = '65534 604' ] || bad "it is $(stat -c '%u %a' open/root)"
	fi
	txmap snapshot "$pid" "$dir/open/out"; is 0; holds open/out one
	[ "$(stat -c '%u %g %a' open/out)" = "$(stat -c '%u %g %a' a.dat)" ] || bad "it is $(stat -c '%u %g %a' open/out)"
	stop
	[ "$who" = self ] || return 0
	claim 'the limit of the process counts'
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 two' ok
	prlimit --pid "$pid" --fsize=4096:
	txmap snapshot "$pid" "$dir/open/out" --force; is 1; errs 'EFBIG'; holds open/out one
	order 'load 0 3' two
	killed
}

t_full() {
	[ "$(id -u)" = 0 ] || return 0
	mkdir full
	mount_or_skip -t tmpfs -o size=4M,mode=777 none "$dir/full" || return 0
	claim 'into a full disk'
	make_file a.dat x 5M
	set='commit=none'
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	txmap snapshot "$pid" "$dir/full/out"; is 1; errs 'ENOSPC'; one_line; nothing full/out
	[ "$(df --output=used -k full | tail -1)" -lt 100 ] || bad 'the space is not given back'
	claim 'what fills it is what is uncommitted'
	order 'truncate 0' ok; order 'truncate 5M' ok; order 'fill 0 4500K y' ok
	txmap snapshot "$pid" "$dir/full/out"; is 1; errs 'ENOSPC'; nothing full/out
	order 'same 0 4500K' y
	order 'truncate 1M' ok
	txmap snapshot "$pid" "$dir/full/out"; is 0; cmp -s full/out <(head -c 1M /dev/zero | tr '\0' y) || bad 'it is something else'
	stop
	claim 'holes of a file system that cannot tell its extents'
	rm full/out; truncate -s 64M full/b.dat; printf data | dd of=full/b.dat bs=1 seek=40M conv=notrunc 2>/dev/null
	start; order "open $dir/full/b.dat" ok; order 'map 0' ok; order 'store 20M one' ok
	txmap snapshot "$pid" "$dir/full/out"; is 0; holds full/out data $((40 << 20)); holds full/out one $((20 << 20))
	[ "$(stat -c %s full/out)" = 67108864 ] || bad "it has $(stat -c %s full/out) bytes"
	stop
	txmap snapshot --path full/b.dat "$dir/full/out" --force; is 0; same full/b.dat full/out
	rm full/b.dat
	claim 'the command, too'
	rm full/out
	make_file b.dat x 5M
	txmap snapshot --path b.dat full; is 1; errs 'ENOSPC'; nothing full/b.dat
	cd / && umount "$dir/full"; cd "$dir" || exit 1
}

t_killed() {
	claim 'whoever makes it is killed'
	make_file a.dat x 32M
	set='commit=none'
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	(while txmap snapshot "$pid" "$dir/out" --force && [ "$status" = 0 ]; do :; done) >/dev/null 2>&1 &
	local many=$! i
	for i in $(seq 200); do [ ! -e out ] || break; sleep 0.02; done
	order 'store 0 two' ok
	killed
	wait "$many"
	cmp -s <(tail -c +4 out) <(tail -c +4 a.dat) || bad 'a copy is not whole'
	case $(head -c 3 out) in one | two) ;; *) bad 'a copy is of something else' ;; esac
	txmap snapshot --path a.dat "$dir/out" --force; is 0; same a.dat out; rm out; nothing out
	claim 'and another one has the file, too'
	set='commit=msync'
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'fill 1M 20M y' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 two' ok
	use one
	(while txmap snapshot "$pid" "$dir/out" --force && [ "$status" = 0 ]; do :; done) >/dev/null 2>&1 &
	many=$!
	for i in $(seq 200); do [ ! -e out ] || break; sleep 0.02; done
	killed
	wait "$many"
	use two; order 'store 8 more' ok; order msync ok; holds a.dat two; holds a.dat more 8; holds a.dat yyyy $((20 << 20))
	txmap snapshot "$pid" "$dir/out" --force; is 0; same a.dat out
	stop
}

t_holes() {
	claim 'holes stay holes'
	truncate -s 1G a.dat; printf data | dd of=a.dat bs=1 seek=500M conv=notrunc 2>/dev/null
	[ "$who" != ordinary ] || chown 65534:65534 a.dat
	set='commit=none'
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 700M one' ok
	txmap snapshot "$pid" "$dir/out"; is 0
	[ "$(stat -c %b out)" -lt 4000 ] || bad "it has $(stat -c %b out) blocks"
	[ "$(stat -c %s out)" = 1073741824 ] || bad 'size'
	holds out data $((500 << 20)); holds out one $((700 << 20))
	stop
	txmap snapshot --path a.dat "$dir/out" --force; is 0
	[ "$(stat -c %b out)" -lt 4000 ] || bad "the command's has $(stat -c %b out) blocks"
	holds out data $((500 << 20)); holds out ... $((700 << 20))
}

t_reflink() {
	[ "$(id -u)" = 0 ] && command -v mkfs.xfs >/dev/null || return 0
	truncate -s 400M image; mkfs.xfs -q -m reflink=1 image || return 0
	mkdir -m 777 xfs
	mount_or_skip -o loop "$dir/image" "$dir/xfs" || return 0
	chmod 777 xfs
	claim 'by reflink where the file system can'
	make_file xfs/a.dat x 40M
	set='commit=msync'
	start
	order "open $dir/xfs/a.dat" ok; order 'map 0' ok
	order 'store 5M one' ok; order msync ok
	order 'store 20M two' ok; order 'truncate 39M' ok; order 'write 39M end' ok
	txmap snapshot "$pid" "$dir/xfs/out"; is 0; says 'reflinked 1'
	[ "$(filefrag -v xfs/out | grep -c shared)" -gt 0 ] || bad 'no shared blocks'
	order msync ok; sync xfs/a.dat
	same xfs/a.dat xfs/out
	txmap snapshot "$pid" "$dir/other"; is 0; says 'reflinked 0'; same xfs/a.dat other
	stop
	txmap snapshot --path xfs/a.dat "$dir/xfs/own"; is 0; says 'reflinked 1'; same xfs/a.dat xfs/own
	cd / && umount "$dir/xfs"; cd "$dir" || exit 1
}

t_plugin() {
	claim 'a backend that is no file'
	make_file a.dat x 8192
	set="commit=none backend=plugin:$top/build/plugins/ram_backend.so"
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok; order 'store 4096 two' ok
	order 'load 0 3' one
	txmap snapshot "$pid" "$dir/out"; is 0; holds out one; holds out two 4096
	stop
}

t_busy() { # two counters in two pages: the first is one ahead of the second at most
	command -v python3 >/dev/null || return 0
	claim 'a program that stores and commits all the time'
	make_file a.dat '\0' 4M
	cat >count.py <<'PY'
import ctypes, mmap, os, sys, threading
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
words = [ctypes.c_uint64.from_buffer(m, off << 20) for off in range(4)] # one store each; struct.pack_into stores zeros first
stop = False
def run():
    n = 0
    while not stop:
        n += 1
        for w in words: w.value = n
        if n % 50 == 0: m.flush()
t = threading.Thread(target=run)
t.start()
print("ready", flush=True)
sys.stdin.read()
stop = True
t.join()
PY
	set='commit=msync'
	settings
	mkfifo to from
	(as env "${vars[@]}" python3 count.py "$dir/a.dat" <to >from 2>"$work/.py") &
	local py=$! i k answer
	exec 5>to 6<from
	read -r -t 30 answer <&6 || bad "it does not begin: $(cat "$work/.py")"
	for i in $(seq 8); do
		txmap snapshot --path "$dir/a.dat" "$dir/out" --force; is 0
		read -r -a k < <(for o in 0 1 2 3; do od -An -tu8 -j $((o << 20)) -N 8 out; done | tr '\n' ' ')
		[ "${k[0]}" -ge "${k[1]}" ] && [ "${k[1]}" -ge "${k[2]}" ] && [ "${k[2]}" -ge "${k[3]}" ] &&
			[ $((k[0] - k[3])) -le 1 ] && [ "${k[0]}" -gt 0 ] || bad "torn: ${k[*]}"
	done
	exec 5>&- 6<&-
	wait $py || bad "the program ended with $?: $(cat "$work/.py")"
}

each t_both
each_user t_rights
each_user t_killed
each_user t_plugin
each t_busy
users=self
each_user t_holes
each_user t_full
each_user t_reflink
exit $failed
