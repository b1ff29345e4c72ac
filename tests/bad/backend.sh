#!/bin/bash
# SPDX-License-Identifier: MIT
# Storage that fails, or hangs: the error is the real one, other files go on, nothing is lost, and what hangs can be
# stopped, continued and killed.
. "$(dirname "$0")/lib.sh"
cp "$top"/build/plugins/*.so "$work/bin/"

odd() { # LINES: what the storage does from now on
	printf '%s\n' "$@" >"$dir/.orders-new"
	chmod 644 "$dir/.orders-new"
	mv "$dir/.orders-new" "$orders"
}
begin() { # LOAD [SIZE]: a.dat behind the odd storage
	orders=$dir/orders
	rm -f "$orders"
	glob="$dir/a.dat"
	set="backend=plugin:$work/bin/odd_backend.so:$orders load=$1"
	make_file a.dat o "${2:-8M}"
}

t_load_fails() {
	local load
	for load in eager lazy; do
		claim "EIO at a load, load=$load"
		begin $load
		start
		order "open $dir/a.dat" ok
		odd 'load 5'
		order 'map 0' 'ok|EIO'
		if [ "$answer" = ok ]; then
			order 'load 0 1' SIGBUS
			errs 'a.dat: .*(EIO|Input/output)'
			order 'read 4M 1' EIO
			order 'store 1M x' SIGBUS
		else
			errs 'a.dat: .*EIO'
		fi
		claim "and when it can be read again, load=$load"
		rm -f "$orders"
		[ "$answer" != EIO ] || order 'map 0' ok
		[ "$load" = lazy ] || { order unmap 'ok|E.*'; order 'map 0' ok; }
		order 'load 0 3' ooo; order 'load 4M 3' ooo; order 'store 1M new' ok; order 'read 1M 3' new
		order msync ok
		stop; is 0
	done
}

t_commit_fails() {
	local op e
	for op in begin store commit; do
		for e in 122:EDQUOT 28:ENOSPC 5:EIO 27:EFBIG; do
			claim "$e of $op at the commit"
			begin eager 64K
			start
			order "open $dir/a.dat" ok; order 'map 0' ok
			order 'store 0 one' ok; order msync ok
			odd "$op ${e%:*}"
			order 'store 4K two' ok; order 'truncate 1M' ok
			order msync "${e#*:}"; errs "a.dat: commit: nothing was written, the stores are kept: .*${e#*:}"
			order fsync "${e#*:}"
			order 'load 4K 3' two; order size 1048576
			txmap commit "$pid"; is 1; errs "${e#*:}"
			claim "$e of $op: then all is well again, and nothing was stored anew"
			rm "$orders"
			order msync ok; order 'load 4K 3' two
			odd "$op ${e%:*}"
			order 'store 8K bad' ok; order msync "${e#*:}"
			txmap discard "$pid"; is 0
			order 'load 4K 6' twoooo; order 'load 8K 3' ooo; order 'load 0 3' one
			rm "$orders"
			order msync ok
			stop; is 0
		done
	done
}

t_end_of_use() {
	claim 'an error at the last close: the close says it, the stores are kept, opening again shows them'
	begin eager
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order unmap ok
	odd 'commit 122'
	order close EDQUOT; errs 'a.dat: commit: .*EDQUOT'
	order "open $dir/a.dat" ok; order 'read 0 3' one; order 'map 0' ok; order 'load 0 3' one
	rm "$orders"
	order msync ok; order unmap ok; order close ok
	claim 'the same with munmap as the last use'
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 two' ok; order close ok
	odd 'commit 122'
	order unmap ok; errs 'a.dat: commit: .*EDQUOT'
	rm "$orders"
	order "open $dir/a.dat" ok; order 'read 0 3' two; order fsync ok
	stop; is 0
}

t_hangs() {
	claim 'a load that hangs: the process can be stopped, continued, asked and killed'
	begin lazy
	start
	order "open $dir/a.dat" ok
	odd 'load hang'
	tell 'map 0'; tell 'load 4M 1' # one of them hangs
	sleep 0.3
	kill -STOP "$pid"
	wait_for_state T
	kill -CONT "$pid"
	wait_for_state '[SDR]'
	kill -0 "$pid" || bad 'it is gone'
	txmap status --json "$pid" &
	local asking=$!
	killed
	[ "$status" = 137 ] || bad "killed, it has status $status"
	wait $asking
	claim 'the next one is served'
	rm -f "$orders"
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 4M 3' ooo; stop; is 0

	claim 'a load that hangs is not waited for by a traced process, and goes on afterwards'
	command -v gdb >/dev/null || return
	begin lazy
	start
	order "open $dir/a.dat" ok
	odd 'load hang'
	tell 'map 0'
	sleep 0.2
	timeout -k 5 30 gdb -q -n -batch -p "$pid" -ex 'thread apply all bt 1' -ex detach >"$work/.out" 2>&1 ||
		bad 'gdb cannot attach'
	rm -f "$orders"
	read -r -t 20 answer <&"${from[$name]}" || bad 'it hangs still'
	[ "$answer" = ok ] || bad "map says $answer"
	order 'load 4M 3' ooo
	stop; is 0

	claim 'a commit that hangs: the program is killed, the storage has the commit before'
	begin eager
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	odd 'commit hang'
	order 'store 0 two' ok; tell msync
	sleep 0.2
	killed
	[ "$status" = 137 ] || bad "killed, it has status $status"
}
wait_for_state() { # PATTERN
	local i state
	for i in $(seq 200); do
		state=$(sed 's/.*) //' "/proc/$pid/stat" | cut -c1)
		# shellcheck disable=SC2053 # a pattern, on purpose
		[[ $state != $1 ]] || return 0
		sleep 0.02
	done
	bad "its state is $state, not $1"
}

each t_load_fails
each t_commit_fails
each t_end_of_use
each t_hangs
exit $failed
