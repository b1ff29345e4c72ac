#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs that take turns by locks on the file: who gives a lock up has committed, who gets one sees what others stored. The
# others know nothing of txmap, as programs on another host.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

begin() { # SETTINGS...
	set="$*"
	make_file a.dat o 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
}

t_unlock() {
	claim 'commit=unlock: the stores are in the file before the lock is free'
	local how
	for how in flock:ex fcntl:w ofd:w lockf:lock; do
		begin commit=unlock
		order "${how%:*} ${how#*:}" ok; order 'store 0 new' ok; order msync ok; order fsync ok; holds a.dat ooo
		order "${how%:*} un" ok; holds a.dat new
		claim "commit=unlock, by ${how%:*}: closing gives the lock up, too"
		order "${how%:*} ${how#*:}" ok; order 'store 0 two' ok; order close ok; holds a.dat two
		claim 'a close without a lock, or the end of the process, is none'
		order 'store 0 bad' ok; order "open $dir/a.dat" ok; order close ok; holds a.dat two
		tell 'exit 3'; ended; is 3; holds a.dat two
	done
	claim 'a flock that becomes a shared one'
	begin commit=unlock
	order 'flock ex' ok; order 'store 0 new' ok; order 'flock ex' ok; holds a.dat ooo; order 'flock sh' ok; holds a.dat new
	order 'flock un' ok; stop; is 0
	claim 'who stored nothing commits nothing: not what another one is in the middle of'
	begin commit=unlock
	order 'store 0 new' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'fcntl r' ok; order 'fcntl un' ok; stop; is 0
	holds a.dat ooo
	use one; order 'flock ex' ok; order 'flock un' ok; holds a.dat new; stop
	claim 'other rules commit at no unlock'
	begin
	order 'flock ex' ok; order 'fcntl w' ok; order 'store 0 new' ok; order 'fcntl un' ok; order 'flock un' ok; holds a.dat ooo
	stop; is 0; holds a.dat new
	claim 'a commit that fails: the lock is given up, one line says it, and the stores are kept'
	begin commit=unlock,msync
	order 'fcntl w' ok; order 'store 0 bad' ok
	sleep 0.02; printf out | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
	order 'fcntl un' ok; one_line; errs 'commit: the file was changed by somebody else.*EBUSY'
	run timeout 10 python3 -c 'import fcntl,sys; f=open(sys.argv[1],"r+b"); fcntl.lockf(f,fcntl.LOCK_EX); print("free")' "$dir/a.dat"
	is 0; says free
	order 'load 0 3' bad; order msync EBUSY; holds a.dat out
	killed
}

t_lock() {
	claim 'invalidate=lock: who gets a lock sees what others stored, also right after a commit'
	local how i
	for how in flock:ex flock:sh fcntl:w fcntl:r ofd:w lockf:lock; do
		begin invalidate=lock
		for i in 1 2 3 4 5; do
			order "store 4096 $i" ok; order msync ok
			printf "o%s" $i | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
			order "${how%:*} ${how#*:}" ok; order 'load 0 2' "o$i"; order "${how%:*} un" ok
		done
		silent
		stop; is 0
	done
	claim 'a lock that is not given changes nothing'
	begin invalidate=lock
	printf new | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
	order 'fcntl nonsense' ok # an unlock
	order 'load 0 3' ooo; order 'flock sh' ok; order 'load 0 3' new; order 'flock un' ok
	claim 'a store that was not committed stays when nobody changed the file, else it goes with a warning, or stays as asked for'
	order 'store 4096 mine' ok; order 'flock sh' ok; order 'load 4096 4' mine; order 'flock un' ok; silent
	sleep 0.02; printf two | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
	order 'flock ex' ok; order 'load 0 3' two; order 'load 4096 4' oooo; order 'flock un' ok; one_line; errs 'warning: .*1 pages with stores'
	stop; is 0
	begin invalidate=lock on_invalid_dirty=keep
	order 'store 4096 mine' ok; sleep 0.02; printf two | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
	order 'flock ex' ok; order 'load 0 3' two; order 'load 4096 4' mine; order msync ok; order 'flock un' ok; silent
	holds a.dat mine 4096; stop; is 0
	begin invalidate=lock
	claim 'stores of another process, which has another lock, stay'
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 4096 mine' ok
	use one; order 'fcntl r' ok; order 'load 4096 4' mine; order 'fcntl un' ok
	use two; order msync ok; holds a.dat mine 4096; stop; is 0
	use one; stop; is 0
}

cat >"$work/bin/turns.py" <<'PY'
# Two counters that are always equal, each stored to under an exclusive lock; the second is a page away.
import fcntl, os, struct, sys
path, n = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR)
if len(sys.argv) > 3: # by a mapping
    import mmap
    m = mmap.mmap(fd, 0)
    get = lambda off: struct.unpack_from("=Q", m, off)[0]
    put = lambda off, v: struct.pack_into("=Q", m, off, v)
else:
    get = lambda off: struct.unpack("=Q", os.pread(fd, 8, off))[0]
    put = lambda off, v: os.pwrite(fd, struct.pack("=Q", v), off)
for i in range(n):
    fcntl.lockf(fd, fcntl.LOCK_EX)
    a, b = get(0), get(40960)
    if a != b: sys.exit("at %d: %d and %d" % (i, a, b))
    put(0, a + 1); put(40960, a + 1)
    fcntl.lockf(fd, fcntl.LOCK_UN)
print("done")
PY

count_together() { # SHARE
	claim "two under txmap, share=$1, and one without count together, taking turns as fast as they can"
	head -c 64K /dev/zero >a.dat; [ "$who" != ordinary ] || chown 65534 a.dat
	set="commit=unlock invalidate=lock share=$1"
	local ps=() i
	settings
	for i in 1 2; do
		(as env "${vars[@]}" python3 "$work/bin/turns.py" "$dir/a.dat" 60 map >"out.$i" 2>&1) &
		ps+=($!)
	done
	(as python3 "$work/bin/turns.py" "$dir/a.dat" 150 >out.3 2>&1) &
	ps+=($!)
	wait "${ps[@]}"
	for i in 1 2 3; do grep -qx done out.$i || bad "number $i says: $(cat out.$i)"; done
	status=$(od -An -tu8 -N8 a.dat | tr -d ' '); is 270
	status=$(od -An -tu8 -N8 -j40960 a.dat | tr -d ' '); is 270
	rm -f out.*
}

t_turns() {
	count_together user
	count_together process
	claim 'what the other one stored is not undone by recovery after kill -9'
	[ "$(ls -A)" = a.dat ] || bad "left: $(ls -A)"
	start; order "open $dir/a.dat" ok; order 'map 0' ok
	order 'flock ex' ok; order 'store 0 one' ok; order 'flock un' ok; holds a.dat one
	printf two | dd of=a.dat bs=1 conv=notrunc 2>/dev/null
	killed
	txmap recover a.dat; is 0; holds a.dat two
}

each t_unlock
each t_lock
each t_turns
exit $failed
