#!/bin/bash
# SPDX-License-Identifier: MIT
# Somebody else changes the file while it is mapped: nothing comes in before an invalidation, then exactly what is
# in the file; stores that were not committed by on_invalid_dirty and conflict.
. "$(dirname "$0")/lib.sh"

rewrite() { # FILE BYTES [OFF]: another program, in place
	sleep 0.01 # a file's time moves in steps
	printf %s "$2" | dd of="$1" bs=1 seek="${3:-0}" conv=notrunc 2>/dev/null
}
begin() { # SETTINGS...: a program that has a.dat mapped
	set="commit=msync,fsync $*"
	make_file a.dat o 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' ooo
}

t_reader() {
	local load
	for load in eager lazy; do
		# lazy needs faults of the kernel, too: refused or used eagerly where that is not there
		claim "load=$load: a reader sees the old bytes until the invalidation, then exactly the new ones"
		set="load=$load"
		make_file a.dat o 1M
		start
		order "open $dir/a.dat" ok; order 'map 0' ok
		for i in $(seq 0 8 255); do order "load $((i * 4096)) 3" ooo; done
		sleep 0.01
		head -c 1M /dev/zero | tr '\0' n | dd of=a.dat conv=notrunc 2>/dev/null
		for i in $(seq 0 8 255); do order "load $((i * 4096)) 3" ooo; done
		txmap invalidate --path "$dir/a.dat"; is 0; silent
		order 'same 0 1M' n
		claim "load=$load: a part of the file"
		rewrite a.dat AAAA; rewrite a.dat BBBB 4096; rewrite a.dat CCCC 8192
		txmap invalidate --path "$dir/a.dat" --offset 4096 --length 4K; is 0
		order 'load 0 4' nnnn; order 'load 4096 4' BBBB; order 'load 8192 4' nnnn
		txmap invalidate "$pid"; is 0
		order 'load 0 4' AAAA; order 'load 8192 4' CCCC
		claim "load=$load: the file got longer, and shorter"
		head -c 4096 /dev/zero | tr '\0' l >>a.dat
		order size 1048576
		txmap invalidate "$pid"; is 0
		order size 1052672
		order 'map 0' ok; order 'same 1M 4096' l
		truncate -s 512K a.dat
		txmap invalidate "$pid"; is 0
		order size 524288
		order 'load 0 4' AAAA
		order 'load 520K 1' SIGBUS
		stop; is 0; silent
		[ "$(stat -c %s a.dat)" = 524288 ] || bad 'the reader changed the size'
	done
}

t_polling() {
	claim 'a reader that polls meanwhile sees old, then new, never a mixture nor anything else'
	cat >"$work/bin/poll.py" <<'PY'
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
print("ready", flush=True)
seen, stop = [], time.time() + 30
while time.time() < stop:
    b = m[:]                              # all pages, one after the other
    s = bytes(sorted(set(b)))
    if not seen or seen[-1] != s: seen.append(s)
    if s == b"n": break
print(seen)
time.sleep(0.5) # the answer to the invalidation comes from this process, too
sys.exit(0 if all(x in (b"o", b"n", b"no") for x in seen) and seen[0] == b"o" and seen[-1] == b"n" else 1)
PY
	make_file a.dat o 256K
	settings
	(as env "${vars[@]}" python3 "$work/bin/poll.py" "$dir/a.dat") >poll.out 2>&1 &
	local p=$!
	until grep -qs ready poll.out; do sleep 0.05; done
	sleep 0.2
	head -c 256K /dev/zero | tr '\0' n | dd of=a.dat conv=notrunc 2>/dev/null
	sleep 0.2
	kill -0 $p 2>/dev/null || { cat poll.out; bad 'it ended before the invalidation'; }
	txmap invalidate --path "$dir/a.dat"; is 0
	wait $p; status=$?
	[ $status = 0 ] || { cp poll.out "$work/.out"; bad 'it saw something else'; }
}

t_dirty() {
	claim 'a change from outside under dirty pages: the commit fails, the stores are kept'
	begin
	order 'store 0 mine' ok
	rewrite a.dat THEY 4096
	order msync EBUSY; errs 'a.dat: commit: .*changed by somebody else.*EBUSY'
	order fsync EBUSY
	order 'load 0 4' mine; order 'load 4096 4' oooo
	holds a.dat oooo; holds a.dat THEY 4096
	txmap commit "$pid"; is 1; errs 'EBUSY'

	claim 'on_invalid_dirty=drop: the invalidation drops the stores, then commits work'
	txmap invalidate "$pid"; is 0
	order 'load 0 4' oooo; order 'load 4096 4' THEY
	order msync ok; holds a.dat oooo; holds a.dat THEY 4096
	order 'store 0 next' ok; order msync ok; holds a.dat next; holds a.dat THEY 4096
	stop; is 0

	claim 'on_invalid_dirty=keep: the stores stay, the rest comes in, both are committed'
	begin on_invalid_dirty=keep
	order 'store 0 mine' ok
	rewrite a.dat THEY 4096; rewrite a.dat HERE 8
	order msync EBUSY
	txmap invalidate "$pid"; is 0
	order 'load 0 4' mine; order 'load 4096 4' THEY
	order msync ok
	holds a.dat mine; holds a.dat THEY 4096
	stop; is 0

	claim 'on_invalid_dirty=fail: nothing is invalidated, nothing is lost'
	begin on_invalid_dirty=fail
	order 'store 0 mine' ok
	rewrite a.dat THEY 4096
	txmap invalidate "$pid"; is 1; errs 'EBUSY'
	order 'load 0 4' mine; order 'load 4096 4' oooo; order msync EBUSY
	txmap discard "$pid"; is 0
	order 'load 0 4' oooo
	txmap invalidate "$pid"; is 0
	order 'load 4096 4' THEY
	order 'store 0 mine' ok; order msync ok; holds a.dat mineoooo; holds a.dat THEY 4096
	stop; is 0

	claim 'conflict=overwrite: what was stored is written, the rest stays theirs'
	begin conflict=overwrite
	order 'store 0 mine' ok
	rewrite a.dat THEY 4096
	order msync ok
	holds a.dat mine; holds a.dat THEY 4096
	order 'load 4096 4' oooo
	txmap invalidate "$pid"; is 0
	order 'load 4096 4' THEY; order 'load 0 4' mine
	stop; is 0

	claim 'a program that ends in a conflict says so, and the others'\'' bytes stay'
	begin commit=msync,exit,release
	order 'store 0 mine' ok
	rewrite a.dat THEY
	stop; errs 'a.dat: .*EBUSY'
	holds a.dat THEY
}

t_truncated() {
	local load
	for load in eager lazy; do
		claim "load=$load: cut by another program: what was loaded stays, what was not is zeros; nothing hangs or dies"
		set="load=$load commit=msync,fsync"
		make_file a.dat o 8M
		start
		order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' ooo; order 'store 4K mine' ok
		sleep 0.01
		truncate -s 10000 a.dat
		order 'load 0 3' ooo; order 'load 4K 4' mine; order 'load 9000 3' ooo
		order 'load 5M 3' 'ooo|\.\.\.' # beyond the new end
		[ "$load" = lazy ] || [ "$answer" = ooo ] || bad 'eager, and it is not what was loaded'
		order 'read 6M 3' 'ooo|\.\.\.'; order 'store 7M mine' ok; order 'load 7M 4' mine
		order size 8388608
		order msync EBUSY; errs 'changed by somebody else'
		order 'load 4K 4' mine; order 'load 7M 4' mine
		[ "$(stat -c %s a.dat)" = 10000 ] || bad 'the file was touched'
		txmap invalidate "$pid"; is 0
		order size 10000; order 'load 0 3' ooo; order 'load 4K 3' ooo; order 'load 5M 1' SIGBUS
		order 'load 10001 1' .
		order 'store 0 now' ok; order msync ok; holds a.dat nowo
		[ "$(stat -c %s a.dat)" = 10000 ] || bad 'its size is not what the other program made it'
		stop; is 0

		claim "load=$load: rewritten in place and shorter, as with >"
		make_file a.dat o 8M
		start
		order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' ooo; order 'store 1M mine' ok
		sleep 0.01
		head -c 5000 /dev/zero | tr '\0' n >a.dat
		order 'load 0 3' ooo; order 'load 1M 4' mine; order 'load 4K 3' 'ooo|nnn'; order 'load 3M 3' 'ooo|\.\.\.'
		order fsync EBUSY
		stop # the stores are refused a last time, and that is said
		holds a.dat nnnn; [ "$(stat -c %s a.dat)" = 5000 ] || bad 'the file was touched'

		claim "load=$load: a hole is punched, and the file unlinked"
		make_file a.dat o 8M
		start
		order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' ooo
		fallocate -p -o 0 -l 4M a.dat
		rm a.dat
		order 'load 0 3' ooo; order 'load 2M 3' 'ooo|\.\.\.'; order 'load 6M 3' ooo
		txmap invalidate "$pid"; is 0
		order 'load 0 3' '\.\.\.'; order 'load 6M 3' ooo
		stop

		claim "load=$load: cut and grown all the time while pages are met: each is what it was once"
		make_file a.dat o 8M
		start
		order "open $dir/a.dat" ok; order 'map 0' ok
		(while :; do truncate -s 4096 a.dat; truncate -s 8M a.dat; done) &
		local cutter=$! i
		for i in $(seq 0 7 2047); do order "load $((i * 4096)) 3" 'ooo|\.\.\.'; done
		for i in $(seq 3 50 2047); do order "read $((i * 4096)) 3" 'ooo|\.\.\.|'; done
		order 'store 0 mine' ok; order msync 'ok|EBUSY'
		kill $cutter; wait $cutter 2>/dev/null
		txmap invalidate "$pid"; is 0
		order 'store 0 last' ok; order msync ok; holds a.dat last
		stop; is 0
	done
}

t_copied_up() {
	claim 'a file of an overlay that is copied up by its first writer: who has it mapped sees that at the invalidation'
	[ "$(id -u)" = 0 ] || return
	mkdir low top mnt
	make_file low/a.dat o 8192
	mount_or_skip -t tmpfs none "$dir/top" || return
	mkdir top/up top/work
	[ "$who" != ordinary ] || chown 65534 top/up
	mount_or_skip -t overlay overlay -o "lowerdir=$dir/low,upperdir=$dir/top/up,workdir=$dir/top/work" "$dir/mnt" ||
		{ umount top; return; }
	[ "$who" != ordinary ] || chown 65534 mnt
	start reader; order "open $dir/mnt/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 4' oooo
	rewrite mnt/a.dat THEY
	[ -e top/up/a.dat ] || bad 'it was not copied up'
	order 'load 0 4' oooo
	txmap invalidate --path "$dir/mnt/a.dat"; is 0
	order 'load 0 4' THEY
	claim 'and shares it with those who come later'
	start two; order "open $dir/mnt/a.dat" ok; order 'map 0' ok; order 'load 0 4' THEY; order 'store 0 mine' ok
	use reader; order 'load 0 4' mine; use two; order msync ok; holds mnt/a.dat mine; holds low/a.dat oooo
	use reader; stop; is 0; use two; stop; is 0
	umount mnt top
}

t_same_size() {
	claim 'rewritten with the same length, within the same second: the commit sees it'
	begin
	order 'store 0 mine' ok
	sleep 0.02
	head -c 64K /dev/zero | tr '\0' n | dd of=a.dat conv=notrunc 2>/dev/null
	order msync EBUSY
	stop
	claim 'replaced by rename: the program keeps its file, and may commit to it; the new one is not touched'
	begin
	order 'store 0 mine' ok
	make_file b.dat n 64K; mv b.dat a.dat
	order msync ok; order 'load 0 4' mine
	holds a.dat nnnn
	stop
}

t_ranges() {
	claim 'invalidate: what is beyond the end, negative, too large or no number'
	begin
	rewrite a.dat THEY 4096
	local args
	for args in '--offset 1G' '--offset 64K' '--offset 64K --length 1' '--offset 1T --length 1T' \
		'--offset 9223372036854775807 --length 1'; do
		text="invalidate $args"
		# shellcheck disable=SC2086 # words
		txmap invalidate --path "$dir/a.dat" $args
		is 1; errs "a.dat: .*(ERANGE|EINVAL)"; one_line
		order 'load 4096 4' oooo
	done
	for args in '--offset -1' '--length -1' '--offset 99999999999999999999' '--offset 0x10' '--length 1Q' \
		'--offset 20000000000G' '--offset 18446744073709551615K' '--offset' '--length x' '--offset 1.5K'; do
		text="invalidate $args"
		# shellcheck disable=SC2086 # words
		txmap invalidate --path "$dir/a.dat" $args
		is 2
		order 'load 4096 4' oooo
	done
	text='a length that goes beyond the end is cut'
	txmap invalidate --path "$dir/a.dat" --offset 4095 --length 18446744073709551615; is 0
	order 'load 4096 4' THEY
	text='a part of a page is its whole page'
	rewrite a.dat MORE 8192
	txmap invalidate --path "$dir/a.dat" --offset 8193 --length 1; is 0
	order 'load 8192 4' MORE
	text='length 0 is to the end'
	rewrite a.dat LAST 61440
	txmap invalidate --path "$dir/a.dat" --offset 60K --length 0; is 0
	order 'load 61440 4' LAST
	stop; is 0
}

t_msync() {
	claim 'invalidate=msync: MS_INVALIDATE brings clean pages in, and never drops a store'
	begin invalidate=msync
	rewrite a.dat THEY 4096
	order 'msync' ok; order 'load 4096 4' oooo
	order 'msync invalidate' ok
	order 'load 4096 4' THEY
	order 'store 0 mine' ok
	rewrite a.dat MORE 8192
	order 'msync invalidate' 'ok|EBUSY'
	order 'load 0 4' mine
	stop
}

command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }
each t_reader
each t_polling
each t_dirty
each t_truncated
each t_copied_up
each t_same_size
each t_ranges
each t_msync
exit $failed
