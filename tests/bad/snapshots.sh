#!/bin/bash
# SPDX-License-Identifier: MIT
# share=process: each process sees the file as of one instant, and its own stores; of two who change one page, one is told so.
. "$(dirname "$0")/lib.sh"

snapshot() { # NAME [SETTING...]: a process that maps a.dat
	local n=$1
	shift
	set="share=process $*"
	start "$n"; order "open $dir/a.dat" ok; order 'map 0' ok
}
commit_fails() { order msync EBUSY; errs 'others have committed'; }
left() { # NAME...: what is in the directory; nothing is in the runtime directory
	[ "$(ls -A)" = "$*" ] || bad "left: $(ls -A)"
	[ "$(ls -A "$runtime" | grep -v '^shares$')" = '' ] || bad "left in the runtime directory: $(ls -A "$runtime")"
}
over() { # NAME...: they end
	local n
	for n; do use "$n"; stop; is 0; done
}

t_snapshot() {
	make_file a.dat x 64K
	claim 'nobody sees what another one stores'
	snapshot one; order 'store 0 one' ok
	snapshot two; order 'load 0 4' xxxx; order 'store 4096 two' ok
	use one; order 'load 4096 4' xxxx; order 'load 0 4' onex
	holds a.dat xxxx; holds a.dat xxxx 4096
	claim 'nor what it commits, until its own commit'
	order msync ok; holds a.dat onex; holds a.dat xxxx 4096
	use two; order 'load 0 4' xxxx; order 'read 0 4' xxxx
	order msync ok; holds a.dat onex; holds a.dat twox 4096
	order 'load 0 4' onex; order 'load 4096 4' twox; order 'read 0 4' onex
	use one; order 'load 4096 4' xxxx
	claim 'a commit of nothing takes them in, too'
	order msync ok; order 'load 4096 4' twox
	claim 'who comes later sees all that was committed, and a reader keeps what it saw'
	set=share=process
	start three; order "open $dir/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 4' onex; order 'load 4096 4' twox
	use one; order 'store 8192 more' ok; order fsync ok; holds a.dat morex 8192
	use three; order 'load 8192 4' xxxx; order 'read 8192 4' xxxx; order msync ok; order 'load 8192 4' more
	claim 'the end of one commits what it stored'
	use two; order 'store 12288 end' ok
	over two three; holds a.dat endx 12288; holds a.dat more 8192
	use one; order 'store 0 ONE' ok; over one; holds a.dat ONEx; holds a.dat endx 12288
	left a.dat
}

t_conflict() {
	make_file a.dat x 64K
	claim 'who comes second with a page is told, and both keep what they have'
	snapshot one; snapshot two
	use one; order 'store 0 one' ok; order 'store 4096 more' ok
	use two; order 'store 10 two' ok; order 'store 8192 else' ok
	use one; order msync ok
	use two; commit_fails; holds a.dat onexxxxxxxxxxxxx; holds a.dat xxxx 8192
	order 'load 0 13' xxxxxxxxxxtwo; order 'load 8192 4' else; order 'load 4096 4' xxxx
	order msync EBUSY; order fsync EBUSY
	claim 'after a discard it sees theirs, and goes on'
	txmap discard "$pid"; is 0
	order 'load 0 13' onexxxxxxxxxx; order 'load 4096 4' more; order 'load 8192 4' xxxx
	order 'store 10 two' ok; order msync ok; holds a.dat onexxxxxxxtwox; holds a.dat more 4096
	claim 'after an invalidation that drops, too'
	use one; order 'store 0 ONE' ok; use two; order 'store 0 TWO' ok; order msync ok
	use one; order msync EBUSY; txmap invalidate "$pid"; is 0
	order 'load 0 4' TWOx; order 'store 0 ONE' ok; order msync ok; holds a.dat ONEx
	over one two
	claim 'on_invalid_dirty=keep keeps the conflict; a page that nobody else changed is none'
	snapshot one on_invalid_dirty=keep; snapshot two
	use one; order 'store 0 mine' ok
	use two; order 'store 4096 them' ok; order msync ok
	use one; txmap invalidate "$pid"; is 0; order 'load 0 4' mine; order 'load 4096 4' them
	use two; order 'store 0 them' ok; order msync ok
	use one; txmap invalidate "$pid"; is 1; order 'load 0 4' mine; order msync EBUSY; holds a.dat them
	txmap discard "$pid"; is 0; order 'load 0 4' them
	over one two; left a.dat
	claim 'conflict=overwrite: mine, as whole pages, and said so'
	snapshot one conflict=overwrite; snapshot two
	use one; order 'store 0 mine' ok
	use two; order 'store 4 them' ok; order 'store 4096 they' ok; order msync ok; holds a.dat themthem
	use one; order msync ok; errs '1 pages that others had committed'; holds a.dat minexxxx; holds a.dat they 4096; order 'load 4096 4' they
	over one two
}

t_sizes() {
	make_file a.dat x 64K
	claim 'a size that another one committed is seen after one'\''s own commit'
	snapshot one; snapshot two
	use one; order 'truncate 128K' ok; order 'write 100000 far' ok; order msync ok; holds a.dat far 100000
	use two; order size 65536; order 'store 0 two' ok; order msync ok; order size 131072; order 'read 100000 3' far
	claim 'two who change it are in conflict'
	order 'truncate 256K' ok
	use one; order 'truncate 192K' ok; order msync ok; order size 196608
	use two; commit_fails; order size 262144
	txmap discard "$pid"; is 0; order size 196608
	claim 'so is a store behind an end that another one set'
	order 'write 150000 far' ok; use one; order 'truncate 64K' ok; order msync ok
	use two; commit_fails; order 'read 150000 3' far; txmap discard "$pid"; is 0; order size 65536
	claim 'a shrink takes clean pages away, and what grows there again is zeros'
	use one; order 'truncate 4K' ok; order msync ok; order 'truncate 64K' ok; order msync ok
	use two; order 'load 8192 4' xxxx; order 'store 0 tow' ok; order msync ok; order 'load 8192 4' '\.\.\.\.'
	holds a.dat .... 8192
	claim 'overwrite: the size, too'
	over two; snapshot two conflict=overwrite
	order 'truncate 32K' ok; use one; order 'truncate 16K' ok; order msync ok
	use two; order msync ok; errs 'the size'; order size 32768
	[ "$(stat -c %s a.dat)" = 32768 ] || bad "its size is $(stat -c %s a.dat)"
	over one two; left a.dat
}

t_holes() {
	claim 'in a file of holes a page that was only read is no conflict'
	truncate -s 64K a.dat
	[ "$who" != ordinary ] || chown 65534:65534 a.dat
	snapshot one; snapshot two
	order 'same 0 64K' '\.'
	local n
	for n in 1 2 3; do
		use one; order "store 4096 one$n" ok; order msync ok; order 'load 12288 4' '\.\.\.\.'
		use two; order 'load 4096 4' "$([ $n = 1 ] && echo '\.\.\.\.' || echo "one$((n - 1))")"
		order 'same 12288 40000' '\.'; order "store 8192 two$n" ok; order msync ok
		order 'load 4096 4' one$n; holds a.dat one$n 4096; holds a.dat two$n 8192
	done
	over one two; left a.dat
}

t_mix() {
	make_file a.dat x 64K
	claim 'who has another share than those who have the file is refused'
	snapshot one
	local how
	for how in rw ro; do
		set=''
		start two; order "open $dir/a.dat $how" ok; order "map 0 $how" EBUSY; errs 'share=process'; stop
	done
	over one
	for how in rw ro; do
		set=''
		start one; order "open $dir/a.dat $how" ok; order "map 0 $how" ok
		set=share=process
		start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs 'share=user'; stop
		over one
	done
	claim 'and one with another runtime_dir, by the journal'
	snapshot one
	local usual=$runtime
	runtime=$dir/other set=share=process
	start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs 'another runtime_dir'; stop
	runtime=$usual
	over one; rm -r other
	claim 'settings that do not go with it'
	set='share=process load=lazy'; under true; is 78; one_line; errs 'load'
	set='share=process backend=plugin:/x.so'; under true; is 78; one_line; errs 'backend'
	left a.dat
}

t_stranger() {
	make_file a.dat x 64K
	claim 'a change by somebody without txmap: those who have dirty pages are told, and no peer'\''s commit is taken for one'
	snapshot one; snapshot two
	use one; order 'store 0 one' ok
	use two; order 'store 4096 two' ok; order msync ok
	use one; order msync ok; quiet 'somebody who does not'
	order 'store 0 ONE' ok
	sleep 0.02 # a tick of the kernel's clock, which such a change is told by
	printf strange | dd of=a.dat bs=1 seek=8192 conv=notrunc 2>/dev/null
	order msync EBUSY; errs 'somebody who does not'; holds a.dat one; holds a.dat strange 8192
	use two; order msync ok; order 'load 8192 7' strange
	use one; txmap discard "$pid"; is 0; order 'load 8192 7' strange; order 'load 0 4' onex
	order 'store 0 ONE' ok; order msync ok; holds a.dat ONEx; holds a.dat strange 8192
	over one two; left a.dat
}

t_fork() {
	make_file a.dat x 64K
	claim 'a forked child has its parent'\''s snapshot and stores'
	snapshot one; order 'store 0 one' ok; order fork ok
	order 'load 0 4' onex; order 'store 4096 kid' ok
	snapshot two; order 'load 0 4' xxxx; order 'store 8192 two' ok; order msync ok
	use one; order 'load 8192 4' xxxx; order msync ok; holds a.dat onex; holds a.dat kidx 4096; order 'load 8192 4' twox
	claim 'and is told of a conflict'
	order 'store 0 mine' ok; use two; order 'store 0 them' ok; order msync EBUSY
	txmap discard "$pid"; order 'store 0 them' ok; order msync ok
	use one; order msync EBUSY
	use two; stop; is 0
	use one; stop; holds a.dat them; left a.dat
}

t_killed() {
	make_file a.dat x 64K
	claim 'kill -9 of one: the others go on, and who comes sees what was committed'
	snapshot one; order 'store 0 one' ok; order msync ok; order 'store 0 lost' ok
	snapshot two; order 'store 4096 two' ok
	use one; killed
	use two; order msync ok; holds a.dat onex; holds a.dat twox 4096
	snapshot three; order 'load 0 4' onex; order 'load 4096 4' twox; order 'store 0 three' ok; order msync ok
	use two; order 'store 8192 more' ok; order msync ok; order 'load 0 5' three
	claim 'all of them killed: the next one begins anew'
	killed; use three; killed
	rm -f "$runtime"/*.sock
	snapshot one; order 'load 0 5' three; order 'load 8192 4' more; order 'store 0 again' ok; order msync ok
	over one; holds a.dat again; left a.dat
	claim 'a reader that is left, and a writer that comes to it'
	set=share=process; start three; order "open $dir/a.dat ro" ok; order 'map 0 ro' ok
	snapshot one; order 'store 0 first' ok; order msync ok; killed
	snapshot two; order 'load 0 5' first; order 'store 0 other' ok; order msync ok
	use three; order 'load 0 5' again; order msync ok; order 'load 0 5' other
	over two three; rm -f "$runtime"/*.sock; left a.dat
}

t_stopped() {
	make_file a.dat x 64K
	claim 'one that is stopped holds up nobody'
	snapshot one; order 'store 0 one' ok; snapshot two
	kill -STOP "${pids[one]}"
	order 'store 4096 two' ok; order msync ok; holds a.dat twox 4096
	kill -CONT "${pids[one]}"
	use one; order msync ok; holds a.dat onex; order 'load 4096 4' twox
	over one two; left a.dat
}

t_lazy() {
	make_file a.dat x 64K
	claim 'durability=lazy: a commit that is not in the file yet is seen by others'
	snapshot one durability=lazy commit=munmap,msync,exit; snapshot two durability=lazy commit=msync,exit
	use one; order 'store 0 one' ok; order 'unmap' ok
	use two; order 'store 4096 two' ok; order msync ok; order 'load 0 4' onex; holds a.dat onex; holds a.dat twox 4096
	over one two; left a.dat
}

t_bank() {
	claim 'processes that transfer between accounts, and are killed on the way: sums are right at every instant, nothing done is lost'
	set='share=process commit=msync log=error'
	under "$work/bin/bank" "$dir/a.dat" 4 1500 10
	is 0; says '^[0-9]{2,} transfers [0-9]+ conflicts [0-9]+ kills$'
	[ -z "${SHOW:-}" ] || echo "$who $engine: $out"
	run "$work/bin/bank" "$dir/a.dat" 4 check; is 0
	for _ in $(seq 100); do # the children
		ls "$runtime" | grep -q snapshots || break
		sleep 0.05
	done
	rm -f "$runtime"/*.sock; left a.dat
}

t_locks() {
	make_file a.dat x 64K
	claim 'taking turns by locks: who gets the lock sees what the one before stored'
	snapshot one invalidate=lock commit=unlock; snapshot two invalidate=lock commit=unlock
	local n
	for n in one two one two; do
		use $n; order 'fcntl w' ok; order 'load 0 3' "${last:-xxx}"; order "store 0 $n" ok; order 'fcntl un' ok
		holds a.dat "$n"
		last=$n
	done
	over one two; last=; left a.dat
}

t_timer() {
	make_file a.dat x 64K
	claim 'a timer, and a page that is dirty too long, are no reason to show another snapshot'
	snapshot one commit=interval:10ms,dirty:1M,msync; snapshot two
	order 'store 0 two' ok; order msync ok
	sleep 0.1 # several of them
	use one; order 'load 0 3' xxx; order 'store 4096 one' ok
	until grep -q one a.dat; do sleep 0.01; done
	order 'load 0 3' two
	over one two; left a.dat
}

t_names() {
	make_file a.dat x 64K
	claim 'the file is renamed by one of them: the journal goes along'
	snapshot one; snapshot two
	use one; order 'store 0 one' ok; order msync ok
	order "rename $dir/a.dat $dir/b.dat" ok
	use two; order 'store 4096 two' ok; order msync ok
	use one; order 'store 8192 one' ok; order msync ok; order 'load 4096 3' two
	[ ! -e .a.dat.txmap ] || bad 'a journal has the old name'
	killed; use two; killed
	txmap recover b.dat; is 0
	holds b.dat one; holds b.dat two 4096; holds b.dat one 8192
	rm -f "$runtime"/*.sock
	claim 'the journal is removed by somebody: they go on with a new one'
	mv b.dat a.dat
	snapshot one; snapshot two
	use one; order 'store 0 uno' ok; order msync ok
	rm .a.dat.txmap
	use two; order 'store 4096 due' ok; order msync ok; errs 'was removed'
	use one; order 'store 8192 tre' ok; order msync ok; order 'load 4096 3' due
	use two; order 'store 4096 DUE' ok; order msync ok
	killed; use one; killed
	txmap recover a.dat; is 0; holds a.dat uno; holds a.dat DUE 4096; holds a.dat tre 8192
	rm -f "$runtime"/*.sock
	snapshot one; over one; left a.dat
}

t_orphan() {
	claim 'a child whose parent ends before it runs is one of those who have a snapshot'
	make_file a.dat x 64K
	set=share=process
	under "$work/bin/orphan" "$dir/a.dat"
	[ "$status" != 77 ] || { echo 'not tried: a child that runs late'; return; }
	is 0; silent; holds a.dat child 4096
	left a.dat
}

t_invalidate() {
	make_file a.dat x 64K
	claim 'msync with MS_INVALIDATE takes in what others committed, and never what is in conflict'
	snapshot one invalidate=msync commit=none; snapshot two
	order 'store 0 two' ok; order msync ok
	use one; order 'msync invalidate' ok; order 'load 0 3' two; order 'store 0 one' ok
	use two; order 'store 0 TWO' ok; order 'store 4096 two' ok; order msync ok
	use one; order 'msync invalidate' EBUSY; errs 'invalidate'; order 'load 0 3' one; order 'load 4096 3' xxx
	stop; use two; stop; left a.dat
}

for t in snapshot conflict sizes holes mix stranger fork killed stopped lazy locks timer names invalidate orphan bank; do
	[ -z "${only:-}" ] || [ "$only" = $t ] || continue
	each t_$t
done
exit $failed
