#!/bin/bash
# SPDX-License-Identifier: MIT
# Each trigger commits when INTERFACE says so, and nothing else does; durability; signals.
. "$(dirname "$0")/lib.sh"

begin() { # SETTINGS...: a program that stored "new" and did nothing else
	set="$*"
	make_file a.dat o 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
	order 'store 0 new' ok
}
until_holds() { # FILE BYTES: within a moment
	local i
	for i in $(seq 100); do
		[ "$(head -c ${#2} "$1")" != "$2" ] || return 0
		sleep 0.05
	done
	holds "$1" "$2"
}
txid() { txmap status --json "$pid"; sed -n 's/.*"txid": *\([0-9]*\).*/\1/p' <<<"$out"; }

t_calls() {
	claim 'commit=none: nothing commits, but the command does'
	begin commit=none
	order msync ok; order fsync ok; order 'msync async' ok; sleep 0.3
	holds a.dat ooo
	order unmap ok; order close ok; holds a.dat ooo
	stop; is 0; holds a.dat ooo
	begin commit=none
	txmap commit "$pid"; is 0; holds a.dat new
	order 'store 0 bad' ok
	kill -TERM "$pid"; ended; is 143; holds a.dat new
	[ "$(ls -A)" = a.dat ] || { txmap recover a.dat; is 0; holds a.dat new; }

	claim 'commit=msync: only msync'
	begin commit=msync
	order fsync ok; holds a.dat ooo
	order msync ok; holds a.dat new
	order 'store 0 two' ok; order 'msync async' ok; until_holds a.dat two
	order 'store 0 bad' ok; stop; is 0; holds a.dat two

	claim 'commit=fsync: only fsync'
	begin commit=fsync
	order msync ok; holds a.dat ooo
	order fsync ok; holds a.dat new
	order 'store 0 bad' ok; tell 'exit 5'; ended; is 5; holds a.dat new

	claim 'commit=exit: exit, _exit and a return from main'
	begin commit=exit; tell 'exit 5'; ended; is 5; holds a.dat new
	begin commit=exit; tell '_exit 6'; ended; is 6; holds a.dat new
	begin commit=exit; order unmap ok; order close ok; holds a.dat ooo; stop; is 0
	case $(head -c 3 a.dat) in new | ooo) ;; *) bad 'neither old nor new' ;; esac

	claim 'commit=release: the last mapping and the last descriptor'
	begin commit=release
	order close ok; holds a.dat ooo; order unmap ok; holds a.dat new
	stop
	begin commit=release
	order unmap ok; holds a.dat ooo; order close ok; holds a.dat new
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 bad' ok
	tell 'raise 9'; ended; holds a.dat new

	claim 'commit=munmap'
	begin commit=munmap
	order msync ok; holds a.dat ooo; order unmap ok; holds a.dat new
	killed; holds a.dat new

	claim 'commit=term: SIGTERM, SIGINT, SIGHUP with their default action'
	local s
	for s in TERM INT HUP; do
		begin commit=term
		kill -$s "$pid"; ended; is $((128 + $(kill -l $s))); holds a.dat new
	done
	claim 'commit=msync: SIGTERM loses what was not committed'
	begin commit=msync; kill -TERM "$pid"; ended; is 143; holds a.dat ooo
	claim 'a crash commits nothing'
	for s in ABRT QUIT KILL; do
		begin commit=msync,fsync,release,exit,term
		kill -$s "$pid"; ended; is $((128 + $(kill -l $s))); holds a.dat ooo
	done
	[ -e .a.dat.txmap ] && { txmap recover a.dat; is 0; }
	holds a.dat ooo
}

t_made() {
	claim 'a new file that is given its size and mapped: killed before a commit it has the size, and nothing of the stores'
	start
	order "open $dir/n.dat creat" ok; order 'truncate 64K' ok; order 'map 0' ok; order 'store 0 version' ok
	killed
	txmap recover n.dat; is 0
	[ "$(stat -c %s n.dat)" = 65536 ] || bad "its size is $(stat -c %s n.dat)"
	cmp -s -n 65536 n.dat /dev/zero || bad 'it has a part of what was never committed'
	claim 'the next one begins with that, and what it commits is there'
	start; order "open $dir/n.dat" ok; order 'map 0' ok; order 'same 0 64K' '\.'
	order 'store 0 version' ok; order 'store 60K end' ok; order msync ok; killed
	txmap recover n.dat; is 0; holds n.dat version; holds n.dat end 61440
	claim 'killed with nothing but a name it is an empty file'
	start; order "open $dir/e.dat creat" ok; killed
	[ -e e.dat ] && [ ! -s e.dat ] || bad "there is $(ls -lA)"
	start; order "open $dir/e.dat" ok; order 'map 0' EINVAL; order 'truncate 4K' ok; order 'map 0' ok; stop; is 0
	[ "$(ls -A)" = $'e.dat\nn.dat' ] || bad "left: $(ls -A)"
}

t_timers() {
	claim 'commit=interval:200ms'
	begin commit=interval:200ms
	until_holds a.dat new
	order 'store 0 two' ok; until_holds a.dat two
	local first; first=$(txid)
	sleep 0.7
	[ "$(txid)" = "$first" ] || bad 'an idle program commits nothing'
	order 'store 0 bad' ok; killed; txmap recover a.dat
	claim 'commit=dirty:1M: when so much is dirty'
	set=commit=dirty:1M
	make_file a.dat o 4M
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
	order 'fill 0 512K n' ok; sleep 1.2; holds a.dat ooo
	order 'fill 0 1M n' ok; until_holds a.dat nnn
	killed
	claim 'both, and msync beside'
	begin commit=msync,interval:300ms,dirty:1M
	order msync ok; holds a.dat new
	order 'store 0 two' ok; until_holds a.dat two
	stop
}

t_lazy() {
	claim 'durability=lazy: msync and the command wait; an exit commits too'
	begin durability=lazy
	order msync ok; holds a.dat new
	order 'store 0 two' ok; txmap commit "$pid"; is 0; holds a.dat two
	order 'store 0 end' ok; stop; is 0; holds a.dat end
	[ "$(ls -A)" = a.dat ] || bad "left: $(ls -A)"
	claim 'lazy commits by a timer reach the file within a moment'
	begin durability=lazy commit=interval:100ms
	until_holds a.dat new
	for i in 1 2 3 4 5; do order "store 0 n$i" ok; until_holds a.dat "n$i"; done
	killed
	txmap recover a.dat; is 0; holds a.dat n5
	claim 'lazy releases are all there after kill -9 of the process (the machine ran on)'
	begin durability=lazy commit=release
	order unmap ok; order close ok
	killed
	txmap recover a.dat; is 0; holds a.dat new
}

t_signals() {
	claim 'signals that are configured commit, discard, invalidate, and do not end the program'
	begin commit=none commit_signal=USR1 discard_signal=USR2 invalidate_signal=RTMIN+3
	kill -USR1 "$pid"; until_holds a.dat new
	order 'store 0 bad' ok
	kill -USR2 "$pid"
	local i
	for i in $(seq 100); do order 'load 0 3'; [ "$answer" != new ] || break; sleep 0.05; done
	[ "$answer" = new ] || bad "memory is $answer"
	sleep 0.01; printf out | dd of=a.dat conv=notrunc 2>/dev/null
	order 'load 0 3' new
	kill -$(($(kill -l RTMIN) + 3)) "$pid"
	for i in $(seq 100); do order 'load 0 3'; [ "$answer" != out ] || break; sleep 0.05; done
	[ "$answer" = out ] || bad "memory is $answer"
	claim 'a storm of them does no harm'
	order 'store 0 two' ok
	for i in $(seq 300); do kill -USR1 "$pid"; done
	until_holds a.dat two
	order 'load 0 3' two
	stop; is 0
	claim 'before anything is mapped they do nothing, and do not end the program'
	set='commit_signal=USR1'
	start
	order 'size' 'EBADF'
	kill -USR1 "$pid"; sleep 0.1
	order 'size' 'EBADF'
	stop; is 0
}

t_exec() {
	claim 'commit=exec: the program that comes next finds the stores in the file'
	printf '#!/bin/sh\nhead -c 3 %s; echo\n' "$dir/a.dat" >look; chmod 755 look
	begin commit=exec
	order msync ok; holds a.dat ooo
	order "exec $dir/look" new; ended; is 0; holds a.dat new
	claim 'an exec that fails has committed, and the program goes on'
	begin commit=exec
	order 'exec /nowhere' ENOENT; holds a.dat new
	order 'store 0 two' ok; order 'load 0 3' two; order "exec $dir/a.dat" EACCES; holds a.dat two
	order 'store 0 bad' ok; tell 'exit 5'; ended; is 5; holds a.dat two
	claim 'a child of posix_spawn or vfork commits nothing: the memory is its parent'\''s, who goes on'
	begin commit=exec
	order 'spawn /bin/true' 0; order 'vfork /bin/false' 1; order 'vfork /nowhere' 127
	holds a.dat ooo
	claim 'a forked child commits by its exec what it stored itself'
	order fork ok; order 'store 4096 kid' ok; order 'exec /nowhere' ENOENT; holds a.dat new; holds a.dat kid 4096
	stop
	begin commit=exec
	order fork ok; order 'exec /nowhere' ENOENT; holds a.dat ooo
	stop
	claim 'without that trigger exec commits nothing, and what was not committed is gone'
	begin commit=msync
	order "exec $dir/look" ooo; ended; is 0; holds a.dat ooo
	[ "$(ls -A)" = $'a.dat\nlook' ] || bad "left: $(ls -A)"
}

outside() { # BYTES [OFF]: somebody without txmap writes them into a.dat
	sleep 0.02 # a tick of the kernel's clock after the last commit
	printf %s "$1" | dd of=a.dat bs=1 seek="${2:-0}" conv=notrunc 2>/dev/null
}
until_loads() { # OFF BYTES: within a moment
	local i
	for i in $(seq 100); do
		order "load $1 ${#2}"
		[ "$answer" != "$2" ] || return 0
		sleep 0.05
	done
	order "load $1 ${#2}" "$2"
}

t_change() {
	claim 'invalidate=change: what somebody else stored comes in by itself'
	begin invalidate=change log=info; order msync ok
	outside out; until_loads 0 out
	errs "info: $dir/a.dat: changed by somebody else: invalidated"; quiet warning
	claim 'and at the next mapping, msync or lock at once'
	outside 111; order fsync ok; order 'load 0 3' 111
	outside 222; order 'fcntl r' ok; order 'load 0 3' 222; order 'fcntl un' ok
	outside 333; order 'map 0' ok; order 'load 0 3' 333
	claim 'a store that was not committed: the commit that the program asks for says EBUSY'
	order 'store 4096 mine' ok; outside 444; order msync EBUSY
	claim 'and when nobody asks it is dropped with a warning'
	until_loads 0 444; order 'load 4096 4' oooo
	errs 'warning: .*changed by somebody else; 1 pages with stores that were not committed are dropped'
	order 'store 4096 mine' ok; order msync ok; holds a.dat 444; holds a.dat mine 4096
	claim 'a file that was cut'
	truncate -s 8K a.dat; local i
	for i in $(seq 100); do order size; [ "$answer" != 8192 ] || break; sleep 0.05; done
	order size 8192
	stop; is 0; holds a.dat 444
	claim 'on_invalid_dirty=keep keeps it, and fail drops nothing and says so once'
	begin invalidate=change on_invalid_dirty=keep; order msync ok
	order 'store 4096 mine' ok; outside out; until_loads 0 out; order 'load 4096 4' mine
	order msync ok; holds a.dat out; holds a.dat mine 4096; silent
	stop; is 0
	begin invalidate=change on_invalid_dirty=fail; order msync ok
	order 'store 4096 mine' ok; outside out; sleep 1.3
	order 'load 0 3' new; order 'load 4096 4' mine; errs 'what somebody else changed is not taken in'; one_line
	txmap discard "$pid"; is 0; until_loads 0 out
	stop; is 0
	claim 'with share=process what another one committed comes in, too'
	set='invalidate=change share=process'
	make_file a.dat o 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 two' ok; order msync ok; stop; is 0
	use one; until_loads 4096 two; silent; stop; is 0
	claim 'our own commits are no change'
	begin invalidate=change log=info
	for i in 1 2 3 4 5; do order "store 0 n$i" ok; order msync ok; sleep 0.2; done
	quiet 'changed by'; stop; is 0
}

each t_calls
each t_made
each t_exec
each_user t_change
each t_timers
each t_lazy
each t_signals
exit $failed
