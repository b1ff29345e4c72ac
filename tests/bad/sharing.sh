#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes that do not descend from each other use the same file: they see each other's stores, a commit of one holds those of
# all, and whoever is killed, stopped, of another user or out of reach harms nobody's bytes.
. "$(dirname "$0")/lib.sh"

left() { # NAME...: what is in the directory; nothing is in the runtime directory
	[ "$(ls -A)" = "$*" ] || bad "left: $(ls -A)"
	[ "$(ls -A "$runtime")" = shares ] || bad "left in the runtime directory: $(ls -A "$runtime")"
}

t_two() {
	make_file a.dat x 64K
	claim 'the second sees what the first stored and did not commit, and the other way round'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' onex
	order 'store 4096 two' ok; order 'store 4 2222' ok
	use one; order 'load 4096 4' twox; order 'load 0 9' onex2222x
	holds a.dat xxxx
	claim 'a commit of one holds what both stored'
	order msync ok; holds a.dat onex2222x; holds a.dat twox 4096
	use two; order 'store 8192 more' ok; use one; order 'store 12288 much' ok
	use two; order fsync ok; holds a.dat more 8192; holds a.dat much 12288
	claim 'sizes are one, too'
	order 'truncate 128K' ok; use one; order size 131072
	claim 'a reader sees both, and its end commits nothing'
	start three; order "open $dir/a.dat ro" ok; order 'map 0 ro' ok
	use one; order 'store 0 ONE' ok
	use three; order 'load 0 4' ONEx; stop; is 0
	holds a.dat onex
	claim 'the end of one that stored commits, the other goes on'
	use one; stop; is 0; holds a.dat ONEx
	use two; order 'load 0 4' ONEx; order 'store 0 end' ok; stop; is 0
	holds a.dat endx; left a.dat
	claim 'a reader that is the last one leaves nothing behind'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok
	start two; order "open $dir/a.dat ro" ok; order 'map 0 ro' ok
	use one; order 'store 0 last' ok; order msync ok; stop; is 0
	use two; order 'load 0 4' last; stop; is 0
	left a.dat
}

t_reader_first() {
	make_file a.dat x 64K
	claim 'a reader that came first sees the stores of a writer'
	start one; order "open $dir/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 4' xxxx
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	use one; order 'load 0 4' onex
	claim 'and becomes a writer'
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 two' ok; order msync ok
	holds a.dat onex; holds a.dat twox 4096
	use two; order 'store 8192 end' ok; order msync ok; holds a.dat endx 8192
	use one; stop; is 0; use two; stop; is 0
	left a.dat
}

t_ends_at_once() {
	make_file a.dat x 64K
	claim 'three that end at once leave nothing behind'
	local i ps
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 one' 'exit 0' >orders
	settings
	for i in $(seq 15); do
		ps=()
		for i in 1 2 3; do
			(as env "${vars[@]}" "$poke" <orders >/dev/null 2>&1) &
			ps+=($!)
		done
		wait "${ps[@]}"
		[ "$(ls -A "$runtime")" = shares ] || { bad "left in the runtime directory: $(ls -A "$runtime")"; break; }
	done
	holds a.dat onex
}

t_descriptor() {
	make_file a.dat x 64K
	claim 'what one does by a descriptor, without a mapping, agrees with the mapping of another'
	start two; order "open $dir/a.dat" ok; order 'read 0 4' xxxx
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	use two; order 'read 0 4' onex; order 'write 4096 two' ok; order 'truncate 128K' ok; order size 131072
	use one; order 'load 4096 4' twox; order size 131072
	holds a.dat xxxx; holds a.dat xxxx 4096
	order msync ok; holds a.dat onex; holds a.dat twox 4096
	claim 'and so it does when it opens the file afterwards'
	order 'store 0 ONE' ok
	start three; order "open $dir/a.dat ro" ok; order 'read 0 4' ONEx; stop; is 0
	use two; stop; is 0; use one; stop; is 0; holds a.dat ONEx; left a.dat
}

t_control_off() {
	make_file a.dat x 64K
	claim 'control=off does not stop sharing'
	set=control=off
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' onex; stop; is 0
	use one; stop; is 0; holds a.dat onex; left a.dat
}

t_engines() {
	make_file a.dat x 64K
	claim 'processes with different engines share'
	set=engine=segv
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	set=''
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' onex; order 'store 4096 two' ok
	use one; order msync ok; holds a.dat onex; holds a.dat twox 4096
	use two; order 'store 4096 TWO' ok; use one; order msync ok; holds a.dat TWOx 4096
	use one; order 'store 0 ONE' ok; use two; order msync ok; holds a.dat ONEx
	stop; is 0; use one; stop; is 0; left a.dat
}

t_kill() {
	make_file a.dat x 64K
	local victim other
	for victim in one two; do
		[ $victim = one ] && other=two || other=one
		claim "kill -9 of $victim: the stores of both are in the next commit"
		start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one1' ok
		start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 two2' ok
		use $victim; killed
		use $other; order 'load 0 4' one1; order 'load 4096 4' two2
		order 'store 8192 more' ok; order msync ok
		holds a.dat one1; holds a.dat two2 4096; holds a.dat more 8192
		claim 'and the next one is let in'
		start three; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 xxxx' ok; order msync ok; stop; is 0
		use $other; order 'fill 0 64K x' ok; stop; is 0
	done
	claim 'all of them killed: what was not committed is gone, and the next one begins anew'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one1' ok; order msync ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 two2' ok
	use one; killed; use two; killed
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' one1; order 'load 4096 4' xxxx
	stop; is 0; holds a.dat one1; holds a.dat xxxx 4096
	rm -f "$runtime"/*.share "$runtime"/*.sock # of those killed
	left a.dat
}

t_stopped() {
	make_file a.dat x 64K
	claim 'whoever has it is stopped: a newcomer is refused with one line, not given another overlay'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	kill -STOP "$pid"
	start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY
	errs "$dir/a.dat: process [0-9]+ has it managed, and does not answer"
	claim 'it may try again'
	use one; kill -CONT "$pid"
	use two; order 'map 0' ok; order 'load 0 4' onex
	claim 'one of two is stopped: the other gives it, and commits of both go on'
	use one; kill -STOP "$pid"
	start three; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 three' ok; order msync ok
	holds a.dat onex; holds a.dat three 4096
	stop; is 0
	use one; kill -CONT "$pid"; order 'store 0 ONE' ok; stop; is 0; holds a.dat ONEx
	use two; stop; is 0; left a.dat
}

t_registry() {
	make_file a.dat x 64K
	local reg
	claim 'a registry of the dead, of others and of nonsense is no obstacle'
	reg=$runtime/share-$(stat -c %d a.dat | xargs printf %x)-$(stat -c %i a.dat | xargs printf %x)
	printf '999999\n1\n%d\nnonsense\n-5\n99999999999999\n' $$ >"$reg"
	[ "$who" != ordinary ] || chown 65534:65534 "$reg"
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	quiet error
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' onex; stop; is 0
	use one; stop; is 0; left a.dat
}

t_other_place() {
	make_file a.dat x 64K
	claim 'who is not found, because it has another runtime directory, refuses by its journal'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	local mine=$runtime
	runtime=$runtime.other
	start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY
	errs "$dir/a.dat: .*(another user|another runtime_dir).*EBUSY"
	claim 'a second reader sees the last commit'
	order "open $dir/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 4' xxxx
	stop; rm -rf "$runtime"; runtime=$mine
	use one; order msync ok; holds a.dat onex; stop; is 0
	left a.dat
}

t_passthrough() {
	make_file a.dat x 64K
	claim 'on_error=passthrough: who is refused goes to the kernel with a warning; the first is told at its commit'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	local mine=$runtime
	set=on_error=passthrough runtime=$runtime.other
	start two; order "open $dir/a.dat" ok; order 'map 0' ok
	errs "warning: $dir/a.dat: NOT managed .*EBUSY"
	order 'store 4096 two' ok; order msync ok
	holds a.dat two 4096
	stop; is 0
	rm -rf "$runtime"; runtime=$mine
	use one; order msync EBUSY; order 'load 0 3' one
	holds a.dat xxxx; holds a.dat two 4096
	txmap discard "$pid"; txmap invalidate "$pid"; is 0
	order 'load 4096 3' two; order 'store 0 one' ok; order msync ok
	holds a.dat onex; holds a.dat two 4096
	stop; is 0
}

t_killed() {
	make_file a.dat x 64K
	claim 'after kill -9 the next one recovers'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok
	order 'store 0 one' ok; order msync ok; order 'store 0 bad' ok
	killed
	[ -e .a.dat.txmap ] || bad 'there is no journal after kill -9'
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 4' onex
	order 'store 0 two' ok; order msync ok; stop; is 0
	holds a.dat twox
	[ "$(ls -A)" = a.dat ] || bad "left: $(ls -A)"
	claim 'and ten at once that want to'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 last' ok; order msync ok; killed
	settings
	local i ps=()
	for i in $(seq 10); do
		(printf 'open %s ro\nmap 0 ro\nload 0 4\n' "$dir/a.dat" | as env "${vars[@]}" "$poke" >"out.$i" 2>&1) &
		ps+=($!)
	done
	wait "${ps[@]}"
	for i in $(seq 10); do
		[ "$(tail -1 "out.$i")" = last ] || bad "number $i says: $(cat "out.$i")"
	done
	rm -f out.*

	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 papa' ok
	order fork ok # from here on the child answers
	order 'store 4096 baby' ok; order msync ok
	claim 'a child'\''s commit comes with the stores before the fork'
	holds a.dat papa; holds a.dat baby 4096
	claim 'a killed child does not take the parent'\''s stores along'
	pkill -9 -P "$pid"; ended # the parent ends as its child does
	is 137
	holds a.dat papa; holds a.dat baby 4096
}

t_locks() {
	local mine=$runtime
	claim 'a refused mmap does not drop the program'\''s fcntl locks'
	command -v python3 >/dev/null || return
	make_file a.dat x 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	cat >"$work/bin/lock.py" <<'PY'
import ctypes, fcntl, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True) # the module mmap makes and closes a duplicate, and that drops the locks
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 8, 100)
for i in range(3):
    a = libc.mmap(None, 65536, 3, 1, fd, 0)
    print(ctypes.get_errno() if a == ctypes.c_void_p(-1).value else "mapped")
sys.stdout.flush()
code = "import fcntl,os,sys; fd=os.open(sys.argv[1],os.O_RDWR)\ntry: fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,8,100); print('lost')\nexcept OSError: print('kept')"
subprocess.run([sys.executable, "-c", code, sys.argv[1]], env={"PATH": os.environ["PATH"]})
PY
	runtime=$mine.other # what is not found is refused
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says 16
	set=on_error=passthrough
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says mapped
	rm -rf "$runtime"; runtime=$mine
	claim 'nor does one that is shared'
	set=''
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says mapped
	use one; killed
	claim 'nor does an accepted one'
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says mapped
}

t_descriptors() {
	claim 'refused mappings leave no descriptors behind'
	make_file a.dat x 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok
	local mine=$runtime
	runtime=$mine.other # what is not found is refused
	start two
	rm -rf "$runtime"; runtime=$mine
	order "open $dir/a.dat ro" ok; order 'map 0 ro' ok
	order "open $dir/a.dat" ok; order 'map 0' EBUSY
	local before after i
	before=$(ls "/proc/$pid/fd" | wc -l)
	for i in 1 2 3 4 5 6 7 8; do order 'map 0' EBUSY; done
	after=$(ls "/proc/$pid/fd" | wc -l)
	[ "$before" = "$after" ] || bad "descriptors: $before before, $after after 8 more"
	use one; stop
	use two; order 'map 0' ok; order 'store 0 two' ok; order msync ok; holds a.dat two
	stop; is 0
}

t_ids() {
	claim 'a program that gives up its rights, and forks: commits go on, or fail, and end'
	[ "$who" = self ] && [ "$(id -u)" = 0 ] && command -v python3 >/dev/null || return
	cat >"$work/bin/ids.py" <<'PY'
import mmap, os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 26, 1 << 26)) # a journal that only grows must not fill the disk
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0)
m[0:3] = b"one"; m.flush()
os.setgid(65534); os.setuid(65534)
m[0:3] = b"two"; m.flush()
m[4096:4099] = b"dir"
pid = os.fork()
if pid == 0:
    m[8192:8195] = b"kid"; m.flush(); os._exit(0)
print("child", os.waitpid(pid, 0)[1])
m[0:3] = b"end"
PY
	make_file a.dat x 64K
	lib_limit=30
	under python3 "$work/bin/ids.py" "$dir/a.dat"
	is 0; says '^child 0$'
	holds a.dat end; holds a.dat dir 4096; holds a.dat kid 8192
	[ ! -e .a.dat.txmap ] || { txmap recover a.dat; is 0; holds a.dat end; }
	lib_limit=120
}

each t_two
each t_reader_first
each_user t_ends_at_once
each t_descriptor
each t_control_off
each t_engines
each t_kill
each t_stopped
each t_registry
each t_other_place
each t_passthrough
each t_killed
each t_locks
each t_descriptors
each t_ids # what it leaves in the runtime directory it has no right to remove
exit $failed
