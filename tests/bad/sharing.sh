#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes that do not descend from each other use the same file: in this version the second writer is refused,
# and nothing of either is lost. A process killed with -9 does not stand in the way of the next.
. "$(dirname "$0")/lib.sh"

t_two() {
	make_file a.dat x 64K
	claim 'a second writer is refused with the reason'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY
	errs "$dir/a.dat: .*(in use|another process|EBUSY)"
	claim 'it may try again'
	order 'map 0' EBUSY; order 'map 0' EBUSY
	claim 'a second reader sees the last commit'
	order "open $dir/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 4' xxxx
	use one; order msync ok; holds a.dat onex
	use two; txmap invalidate "$pid"; is 0; order 'load 0 4' onex
	claim 'when the first is gone the second can write'
	use one; order 'store 4096 more' ok; stop; is 0
	use two; order "open $dir/a.dat" ok; order 'map 0' ok
	order 'load 4096 4' 'more|xxxx' # until an invalidation the old ones, if they were mapped before
	order 'store 8192 two' ok
	order msync 'ok|EBUSY'
	[ "$answer" = ok ] || { txmap invalidate "$pid"; order 'store 8192 two' ok; order msync ok; }
	holds a.dat onex; holds a.dat more 4096; holds a.dat two 8192
	stop; is 0
	[ "$(ls -A)" = a.dat ] || bad "left: $(ls -A)"
}

t_passthrough() {
	make_file a.dat x 64K
	claim 'on_error=passthrough: the second goes to the kernel with a warning; the first is told at its commit'
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	set=on_error=passthrough
	start two; order "open $dir/a.dat" ok; order 'map 0' ok
	errs "warning: $dir/a.dat: NOT managed .*EBUSY"
	order 'store 4096 two' ok; order msync ok
	holds a.dat two 4096
	stop; is 0
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
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says 16
	set=on_error=passthrough
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says mapped
	use one; killed
	set=''
	claim 'nor does an accepted one'
	under python3 "$work/bin/lock.py" "$dir/a.dat"; says kept; says mapped
}

t_descriptors() {
	claim 'refused mappings leave no descriptors behind'
	make_file a.dat x 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok
	start two
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

each t_ids
each t_two
each t_passthrough
each t_killed
each t_locks
each t_descriptors
exit $failed
