#!/bin/bash
# SPDX-License-Identifier: MIT
# Children that begin another program which nothing can be preloaded into, or that lost the environment: they work on the file
# itself, natively, and whoever has it managed finds out. No process that is not ours is disturbed, whatever its privileges.
. "$(dirname "$0")/lib.sh"
src=$top/tests/bad/poke.c

orders() { printf '%s\n' "$@" >orders; }
# A program that is not managed, beside one that has uncommitted stores; CMD... is run with the same environment.
beside() {
	make_file a.dat o 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok; order 'store 4096 two' ok
	orders "open $dir/a.dat" 'read 0 3' 'read 4096 3' 'write 8192 raw' 'map 0' 'load 8192 3' 'store 12288 RAW' 'msync' 'exit 7'
	under sh -c 'exec "$@" <orders' sh "$@"
	is 7
	[ "$out" = $'ok\none\nooo\nok\nok\nraw\nok\nok' ] || bad 'it does not see the last commit, or cannot work on the file'
	quiet '^txmap'
	order msync EBUSY; errs 'a.dat: .*changed.*'
	holds a.dat raw 8192; holds a.dat RAW 12288; holds a.dat ooo 4096
	order 'load 4096 3' two
	run env TXMAP_RUNTIME_DIR="$runtime" "$txmap" invalidate "$pid"; is 0
	order 'load 8192 3' raw; order 'load 4096 3' ooo; order 'store 4096 new' ok; order msync ok
	holds a.dat new 4096; holds a.dat RAW 12288
	stop; is 0
	[ -z "$(ls -A | grep '\.txmap$')" ] || bad "left: $(ls -A)"
}
refused() { # PROGRAM WHY
	txmap run --path "$dir/*" "$1"
	is 126; one_line; errs "$2"
}

# A child that could not enter itself where others look for it, and whose parent is killed.
orphan() { # LOCK: the registry's
	make_file a.dat o 64K
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	exec {lock}<"$1"; flock "$lock"
	order fork ok
	child=$(cat "/proc/$pid/task/$pid/children")
	kill -9 "$pid"; wait "$pid" 2>/dev/null
	[ -z "${2:-}" ] || kill -STOP $child
	exec {lock}<&-
	start two; order "open $dir/a.dat" ok
}
t_orphan() {
	local registry child lock
	make_file a.dat o 64K
	registry=$runtime/share-$(printf '%x-%x' "$(stat -c %d a.dat)" "$(stat -c %i a.dat)")
	claim 'a child that others do not know of, after its parent was killed: they find it'
	orphan "$registry"
	order 'map 0' ok; order 'load 0 3' one; order 'store 3 two' ok; order msync ok; holds a.dat onetwo
	stop; is 0
	use one; order 'load 3 3' two; exec {in[one]}>&-; read -r -t 60 -u "${from[one]}"; exec {from[one]}<&-; unset 'pids[one]'
	claim 'the same, and it comes only when the other one has looked for it'
	orphan "$registry" stopped
	tell "map 0"
	until grep -q EBUSY "${outs[two]}"; do :; done
	kill -CONT $child
	read -r -t 60 -u "${from[two]}" answer; [ "$answer" = ok ] || bad "map says $answer"
	order 'load 0 3' one; order 'store 3 two' ok; order msync ok; holds a.dat onetwo
	stop; is 0
	use one; order 'load 3 3' two; exec {in[one]}>&-; read -r -t 60 -u "${from[one]}"; exec {from[one]}<&-; unset 'pids[one]'
	[ -z "$(ls -A | grep '\.txmap$')" ] || bad "left: $(ls -A)"
}

t_lost() {
	claim 'an environment of its own: env -i, unset, another one with exec'
	beside env -i "$poke"
	beside sh -c 'unset LD_PRELOAD; exec "$0"' "$poke"
	beside env LD_PRELOAD= "$poke"
	command -v python3 >/dev/null || return
	local call
	for call in "os.execve(p, [p], {})" "os.posix_spawn(p, [p], {}); sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))" \
		"fd = os.open(p, os.O_RDONLY); os.execve(fd, [p], {})" "sys.exit(subprocess.call([p], env={}))"; do
		claim "$call"
		beside python3 -c "import os, sys, subprocess; p = sys.argv[1]; $call" "$poke"
	done
	claim 'an environment of which only the settings are lost: nothing is managed, nothing said'
	beside env -u TXMAP_PATHS -u TXMAP_ENGINE -u TXMAP_RUNTIME_DIR "$poke"
}

t_strangers() {
	command -v gcc >/dev/null || { echo 'not tried: no gcc'; return; }
	if gcc -w -static "$src" -o static 2>/dev/null; then
		claim 'a static program'
		chmod 755 static; beside ./static; refused ./static 'statically linked'
	fi
	if command -v musl-gcc >/dev/null && musl-gcc -w -static '-Dstrerrorname_np(e)="E"' "$src" -o musls && musl-gcc -w \
		'-Dstrerrorname_np(e)="E"' "$src" -o musl; then
		claim 'a program of another C library; its loader takes no library of this one'
		chmod 755 musl musls
		beside ./musls; beside env -u LD_PRELOAD ./musl; refused ./musl 'another C library'
		orders; under ./musl; is 127
	else
		echo 'not tried: no musl-gcc'
	fi
	if gcc -w -m32 "$src" -o narrow 2>/dev/null; then
		claim 'a 32 bit program: the loader says that it does without us'
		chmod 755 narrow; beside ./narrow; refused ./narrow 'another kind of machine'
	else
		echo 'not tried: no gcc -m32'
	fi
}

t_privileged() {
	[ "$(id -u)" = 0 ] && [ "$who" = ordinary ] || return
	claim 'a set-user-ID program of another user'
	cp "$poke" suid; chown 0 suid; chmod 4755 suid
	beside ./suid; refused ./suid 'set-user-ID'
	unshare -m true 2>/dev/null || { echo 'not tried: mounts'; return; }
	claim 'and one that we are preloaded into all the same: inert, whatever the settings say'
	mkdir up work_
	make_file a.dat o 64K; orders "open $dir/a.dat" 'map 0' 'store 0 raw' 'exit 3'
	cat >secure.sh <<-'SH'
		mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/up,workdir=$1/work_" /etc 2>/dev/null || exit 77
		echo "$2" >/etc/ld.so.preload
		exec setpriv --reuid=65534 --regid=65534 --clear-groups env TXMAP_PATHS="$1/**" TXMAP_LOG=debug TXMAP_COMMIT=nonsense \
			TXMAP_LOG_FILE="$1/log" "$3" <"$1/orders"
	SH
	who=self
	run unshare -m sh secure.sh "$dir" "$so" "$poke"
	if [ "$status" = 77 ]; then
		echo 'not tried: overlay'
	else
		is 78 # this one is no such program, and stops at the wrong setting
		run unshare -m sh secure.sh "$dir" "$so" "$dir/suid"
		is 3; quiet txmap; holds a.dat raw; [ ! -e log ] || bad "the log says $(cat log)"
	fi
	who=ordinary
	rm -rf up work_
}

t_dead() {
	claim 'what a killed parent left is no hindrance for its children: they go on, and the last one cleans up'
	make_file a.dat o 64K
	cat >"$work/bin/orphans.py" <<'PY'
import mmap, os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0); m[0:3] = b"one"; m.flush(); m[4096:4099] = b"two"
r, w = os.pipe()
if os.fork() == 0:
    me = os.getppid(); os.close(w)
    os.read(r, 1) # the parent's end
    m[8192:8197] = b"three"; m.flush()
    n = os.open(sys.argv[1], os.O_RDWR); k = mmap.mmap(n, 0); k[12288:12292] = b"four"; k.flush()
    print(os.pread(n, 3, 4096), flush=True); k.close(); m.close(); os._exit(0)
os.close(r)
os.kill(os.getpid(), signal.SIGKILL)
PY
	command -v python3 >/dev/null || return
	settings
	run env "${vars[@]}" sh -c 'python3 "$0" "$1" | cat' "$work/bin/orphans.py" "$dir/a.dat"
	is 0; says "^b'two'$"; holds a.dat one; holds a.dat two 4096; holds a.dat three 8192; holds a.dat four 12288
	orders "open $dir/a.dat" 'map 0' 'store 0 end' 'msync' 'exit 0'
	under sh -c 'exec "$0" <orders' "$poke"; is 0; silent; holds a.dat end
	[ -z "$(ls -A "$runtime" | grep -vx shares)" ] || bad "left in the runtime directory: $(ls -A "$runtime")"
}

begin_daemon() { # HOW: it closes its descriptors
	rm -f ready; make_file a.dat o 64K
	under "$work/bin/closes" "$dir/a.dat" "$dir/ready" "$1"; is 0
	until [ -s ready ]; do :; done
	daemon=$(cat ready)
}
end_daemon() {
	kill "$daemon"
	while [ -e "/proc/$daemon" ]; do :; done
}
t_closes() {
	local how daemon
	for how in loop close_range closefrom syscall; do
		claim "a daemon that closes all descriptors ($how) goes on to be served by its control socket"
		begin_daemon $how
		txmap commit "$daemon"; is 0; holds a.dat one
		txmap status "$daemon"; is 0; says a.dat
		start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' one; order 'store 8192 two' ok
		txmap commit "$daemon"; is 0; holds a.dat two 8192
		stop; is 0
		end_daemon
		[ -z "$(ls -A | grep '\.txmap$')" ] || bad "left: $(ls -A)"
	done
	claim 'one that does so by the system call instruction cannot commit any more, and never says that it did'
	begin_daemon bare
	for _ in 1 2 3; do txmap commit "$daemon"; [ "$status" != 0 ] || bad 'it says that it committed'; done
	holds a.dat ooo
	end_daemon
	holds a.dat ooo
}

each_user t_lost
each_user t_strangers
each_user t_privileged
each t_dead
each t_orphan
each t_closes
exit $failed
