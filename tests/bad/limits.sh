#!/bin/bash
# SPDX-License-Identifier: MIT
# Little of everything: descriptors, address space, /proc, HOME, directories. The program works, or its mmap fails
# with an errno and a line; it never crashes and never loses what was committed.
. "$(dirname "$0")/lib.sh"

orders() { # FILE: open, map, store, commit, read
	printf '%s\n' "open $1" 'map 0' 'store 0 new' 'msync' 'read 0 3' 'size' 'unmap' 'close' 'exit 0'
}
fine=$'ok\nok\nok\nok\nnew\n65536\nok\nok'
limited() { # CMD...: what runs poke; what it says is $out
	make_file a.dat o 64K
	orders "$dir/a.dat" >orders
	under sh -c 'exec "$@" <orders' sh "$@" "$poke"
}
works() {
	is 0
	[ "$out" = "$fine" ] || bad 'it does not work'
	holds a.dat new
}
# Or mmap fails with one of the errnos $1, in a line, and nothing happens to the file.
works_or_fails() {
	[ "$out" != "$fine" ] || { works; return; }
	[ "$status" != 78 ] || { errs '^txmap: engine = '; return; } # the engine that was asked for wants more
	is 0
	[[ $(sed -n 2p <<<"$out") =~ ^($1)$ ]] || bad "mmap does not fail with $1"
	errs '(a.dat|txmap).*E[A-Z]+'
	holds a.dat ooo
	[ ! -s .a.dat.txmap ] || bad "left: $(ls -lA)"
	txmap recover a.dat; is 0
	[ -z "$(ls -A | grep txmap)" ] || bad "left: $(ls -A)"
}

t_descriptors() {
	local n
	for n in 64 32 24 20 16 14 12 11 10 9 8 7 6 5 4; do
		claim "ulimit -n $n"
		limited prlimit --nofile="$n"
		if [ "$n" -gt 4 ]; then works_or_fails 'EMFILE'; fi
		[ "$status" -lt 124 ] || bad 'it was killed'
	done
	claim 'a program that uses up its descriptors itself'
	command -v python3 >/dev/null || return
	make_file a.dat o 64K
	cat >"$work/bin/use.py" <<'PY'
import mmap, os, sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
fds = []
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    while True: fds.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e: assert e.errno == 24, e
[os.close(fds.pop()) for i in range(int(sys.argv[2]))]
try:
    m = mmap.mmap(fd, 0)
except OSError as e:
    print("mmap", e.errno); sys.exit()
m[0:3] = b"new"
m.flush()
got = 0
try:
    while True: fds.append(os.open("/dev/null", os.O_RDONLY)); got += 1
except OSError as e: assert e.errno == 24, e
m[0:3] = b"two"
m.flush()
print("fine")
PY
	for n in 0 1 2 3 4 5 6 8 10 12; do
		make_file a.dat o 64K
		under python3 "$work/bin/use.py" "$dir/a.dat" "$n"
		is 0; says '^(fine|mmap 24)$'
		case $out in
		fine) holds a.dat two ;;
		*) holds a.dat ooo; [ "$n" = 0 ] || errs 'EMFILE' ;; # with 0 the module fails before the call
		esac
	done
	claim 'a limit that is lowered below our descriptors'
	make_file a.dat o 64K
	sed -i 's/^resource.setrlimit.*//; s/^got = 0/resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)); got = 0/; s/^    while True: fds.append.*e.errno == 24.*//' "$work/bin/use.py"
	sed -i '0,/while True: fds/s/while True: fds.*/pass/; 0,/^\[os.close/s/^\[os.close.*//' "$work/bin/use.py"
	under python3 "$work/bin/use.py" "$dir/a.dat" 0
	is 0; says fine; holds a.dat two
}

t_memory() {
	local kib
	for kib in 400000 100000 50000 30000 24000 20000 16000 14000 12000 10000; do
		claim "ulimit -v $kib"
		limited prlimit --as="${kib}000"
		# so little that the program or its loader itself does not start
		[ "$status" = 127 ] && continue
		works_or_fails 'ENOMEM'
	done
	claim 'a large file in little address space'
	make_file a.dat o 1
	truncate -s 1G a.dat
	orders "$dir/a.dat" >orders
	under sh -c 'exec prlimit --as=200000000 "$0" <orders' "$poke"
	is 0
	sed -n 2p <<<"$out" | grep -q ENOMEM || bad 'mmap does not say ENOMEM'
	claim 'a 1 TiB sparse file costs nothing'
	truncate -s 1T a.dat
	orders "$dir/a.dat" >orders
	under sh -c 'exec "$0" <orders' "$poke"
	is 0
	sed -n 2p <<<"$out" | grep -qE 'ok|ENOMEM' || bad 'mmap says something else'
	rm a.dat
}

t_mappings() {
	command -v python3 >/dev/null || return
	cat >"$work/bin/maps.py" <<'PY'
# Commits while no mapping is left to be had; then it ends by kill -9, or gives them back and goes on.
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0)
m[0:3] = b"one"; m.flush()
taken = []
while True: # two neighbours with the same rights would be one to the kernel
    a = libc.mmap(None, 4096, 1 + 2 * (len(taken) & 1), mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
    if a == ctypes.c_void_p(-1).value: break
    taken.append(a)
for i in range(100): m[i * 8192:i * 8192 + 3] = b"two"
try:
    m.flush(); print("committed", flush=True)
except OSError as e:
    print("errno", e.errno, flush=True)
if sys.argv[2] == "kill": os.kill(os.getpid(), 9)
for a in taken: libc.munmap(a, 4096)
m.flush()
PY
	claim 'no kernel mapping is left at a commit: it is made, or ENOMEM and nothing of it is in the file'
	local n
	make_file a.dat o 1M
	under python3 "$work/bin/maps.py" "$dir/a.dat" kill
	is 137; says '^(committed|errno 12)$'
	local said=$out
	txmap recover a.dat; is 0
	if [ "$said" != committed ]; then
		holds a.dat oneo; for n in 1 50 99; do holds a.dat ooo $((n * 8192)); done
	else
		holds a.dat two; for n in 1 50 99; do holds a.dat two $((n * 8192)); done
	fi
	claim 'and when there are some again, the same commit is made'
	under python3 "$work/bin/maps.py" "$dir/a.dat" end
	is 0
	for n in 0 1 50 99; do holds a.dat two $((n * 8192)); done
}

t_proc() {
	[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo 'not tried: /proc unmounted'; return; }
	claim '/proc is not mounted: the program works, or mmap fails and says why'
	make_file a.dat o 64K
	orders "$dir/a.dat" >orders
	settings
	local was=$who as_=''
	[ "$who" != ordinary ] || as_='setpriv --reuid=65534 --regid=65534 --clear-groups'
	who=self
	run unshare -m sh -c "umount -l /proc && exec env ${vars[*]} $as_ $poke <orders"
	who=$was
	is 0
	[ "$out" = "$fine" ] || bad 'it does not work'
	holds a.dat new
	one_line; errs 'warning: .*ENOENT.*is /proc mounted.*NOT managed'
	claim 'a name longer than PATH_MAX'
	command -v python3 >/dev/null || return
	cat >"$work/bin/deep.py" <<'PY'
import mmap, os
for i in range(21):
    if not os.path.exists("d" * 200): os.mkdir("d" * 200)
    os.chdir("d" * 200)
with open("a.dat", "wb") as f: f.write(b"o" * 8192)
fd = os.open("a.dat", os.O_RDWR); m = mmap.mmap(fd, 0); m[0:3] = b"new"; m.flush()
print(os.pread(fd, 3, 0))
PY
	under python3 "$work/bin/deep.py"
	is 0; says new; one_line; errs 'ENAMETOOLONG.*NOT managed'
	rm -rf dddd*
}

t_surroundings() {
	local var
	for var in 'TMPDIR=/nonexistent' 'TMPDIR=' 'TMPDIR=/dev/null' 'TMPDIR=relative' 'HOME=' 'HOME=/nonexistent' 'LD_BIND_NOW=1' 'LC_ALL=xx' \
		'MALLOC_PERTURB_=165' 'LD_LIBRARY_PATH=.' 'XDG_RUNTIME_DIR=/dev/null'; do
		claim "$var"
		limited env "$var"
		works; silent
	done
	claim 'no HOME, no PATH, nothing in the environment but ours'
	make_file a.dat o 64K; orders "$dir/a.dat" >orders
	settings
	run env -i "${vars[@]}" /bin/sh -c 'exec "$0" <orders' "$poke"
	works; silent
	claim 'the working directory is gone'
	make_file a.dat o 64K; orders "$dir/a.dat" >"$dir/orders"
	under sh -c 'mkdir gone; cd gone; rmdir ../gone; exec "$0" <"$1"' "$poke" "$dir/orders"
	works; silent
	claim 'stdin, stdout, stderr closed: no line of ours in a file that got their number'
	make_file a.dat o 64K
	cat >"$work/bin/closed.py" <<'PY'
import mmap, os, sys
for i in (0, 1, 2): os.close(i)
fd = os.open(sys.argv[1], os.O_RDWR)
assert fd == 0
d = os.open(sys.argv[1] + ".copy", os.O_RDWR | os.O_CREAT)
e = os.open(sys.argv[1] + ".other", os.O_RDWR | os.O_CREAT)
m = mmap.mmap(fd, 0); m[0:3] = b"new"
sys.exit(0) if os.fork() == 0 else os.wait()
try: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096)
except OSError: pass
os.write(e, b"mine")
PY
	set=log=debug
	under python3 "$work/bin/closed.py" "$dir/a.dat"
	is 0
	[ "$(cat a.dat.other)" = mine ] || bad "the file at number 2 holds $(head -c 100 a.dat.other)"
	[ ! -s a.dat.copy ] || bad 'the file at number 1 is not empty'
	holds a.dat new
	set=''
	claim 'log_file: a place where nothing can be written is one warning'
	limited env; works
	for var in /nonexistent/log "$dir" /dev/full; do
		set="log_file=$var log=debug"
		limited env; works
	done
	set="log=debug log_file=$dir/l"; limited env; works; silent
	[ -s l ] || bad 'the log is empty'
	set=''
}

t_preload() {
	make_file a.dat o 64K; orders "$dir/a.dat" >orders
	claim 'the library twice, under two names'
	cp "$so" "$dir/again.so"
	settings
	run env "${vars[@]}" LD_PRELOAD="$so:$so" sh -c 'exec "$0" <orders' "$poke"; works; silent
	make_file a.dat o 64K
	run env "${vars[@]}" LD_PRELOAD="$so $dir/again.so" sh -c 'exec "$0" <orders' "$poke"; works
	rm again.so
	claim 'a relative path'
	make_file a.dat o 64K
	cp "$so" lib.so
	run env "${vars[@]}" LD_PRELOAD=./lib.so "$poke" <orders
	run sh -c 'cd "$1"; exec env '"${vars[*]}"' LD_PRELOAD=./lib.so "$0" <orders' "$poke" "$dir"; works; silent
	claim 'txmap in a directory with a blank in its name'
	mkdir 'a b'; cp "$so" "$txmap" 'a b/'; [ "$who" != ordinary ] || { chmod -R a+rx 'a b'; chown 65534 'a b'; }
	run "$dir/a b/txmap" run --path "$dir/*.dat" -- "$poke"
	is 1; one_line; errs 'a b/libtxmap.so.*blank'
	claim 'a program in a directory with a blank, and a managed file with one'
	cp "$poke" 'a b/poke'; make_file 'a b/f.dat' o 64K
	run "$txmap" run --path "$dir/a b/*.dat" --set log=info --set "runtime_dir=$runtime" -- "$dir/a b/poke"
	is 0
	cat >"$work/bin/blank.py" <<'PY'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0); m[0:3] = b"new"; m.flush()
os.system("exec " + sys.argv[2] + " status --path '" + sys.argv[1] + "' --json")
os.system("exec " + sys.argv[2] + " commit --path '" + sys.argv[1] + "'")
PY
	run env TXMAP_RUNTIME_DIR="$runtime" "$txmap" run --path 'a b/*.dat' -- python3 "$work/bin/blank.py" "$dir/a b/f.dat" "$txmap"
	is 0; says '"path":"[^"]*a b/f.dat"'; says '^txid 1'
	holds 'a b/f.dat' new
}

t_starts() {
	claim '500 starts of /bin/true at once with a rule'
	settings
	run env "${vars[@]}" bash -c 'for i in $(seq 500); do /bin/true & p="$p $!"; done; for q in $p; do wait $q || exit 1; done'
	is 0; silent
	claim 'and of programs that map the same file to read it'
	make_file a.dat o 64K
	printf 'open %s ro\nmap 0 ro\nload 0 3\n' "$dir/a.dat" >orders
	run env "${vars[@]}" bash -c 'for i in $(seq 100); do "$0" <orders >o.$i & p="$p $!"; done; for q in $p; do wait $q || exit 1; done' "$poke"
	is 0; silent
	[ "$(cat o.* | grep -c ooo)" = 100 ] || bad 'not all 100 read it'
}

each t_descriptors
each t_memory
each t_mappings
each_user t_proc
each_user t_surroundings
each_user t_preload
each_user t_starts
exit $failed
