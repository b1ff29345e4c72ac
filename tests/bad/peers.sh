#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes of the same user that are no more, hang, or answer nonsense, and a runtime directory that is full, or has in it what does
# not belong there: each is told in a line, nobody waits for longer than is said, and no byte is lost.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

fresh() { # a runtime directory of its own
	runtime=$dir.run
	rm -rf "$runtime"; mkdir -m 700 "$runtime"
	[ "$who" != ordinary ] || chown 65534:65534 "$runtime"
}
within() { # SECONDS ORDER ANSWER
	local t=$SECONDS
	order "$2" "$3"
	[ $((SECONDS - t)) -le "$1" ] || bad "'$2' took $((SECONDS - t)) s"
}
registry() { # FILE
	printf '%s/share-%x-%x' "$runtime" "$(stat -c %d "$1")" "$(stat -c %i "$1")"
}
# an entry in a registry that counts as others would have counted it: who killed a process left it
entered() { # FILE PID...
	local reg
	reg=$(registry "$1"); shift
	printf '%s\n' "$@" >"$reg"; chmod 600 "$reg"
	[ "$who" != ordinary ] || chown 65534:65534 "$reg"
}

t_litter() {
	claim 'what killed processes left goes with the next one, also of files that are never used again'
	fresh
	make_file a.dat o 64K; make_file b.dat o 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok
	start two; order "open $dir/b.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok
	[ "$(ls "$runtime" | wc -l)" = 7 ] || bad "two processes have $(ls "$runtime")" # two sockets each, two registries, shares
	use one; killed; use two; killed
	[ "$(ls "$runtime" | wc -l)" = 7 ] || bad "two that were killed left $(ls "$runtime")"
	rm -f a.dat "$runtime/shares" # nobody was here within a minute
	: >"$runtime/share-1-2"; : >"$runtime/note.txt"; mkdir "$runtime/123.sock"; ln -s /etc/passwd "$runtime/9.share"
	[ "$who" != ordinary ] || chown -h 65534:65534 "$runtime"/*
	make_file c.dat o 64K
	start one; order "open $dir/c.dat" ok; order 'map 0' ok
	local i
	for i in $(seq 100); do [ "$(ls "$runtime" | wc -l)" != 7 ] || break; sleep 0.05; done
	[ "$(cd "$runtime"; ls | sed "s/^$pid/PID/; s/^share-.*/REG/" | sort | tr '\n' ' ')" = '123.sock 9.share PID.share PID.sock REG note.txt shares ' ] ||
		bad "it is left with $(ls -l "$runtime")"
	[ -s /etc/passwd ] || bad 'a link was followed'
	stop; is 0
	claim 'a hundred that are killed leave no more than one does'
	rm -rf "$runtime/123.sock" "$runtime/9.share" "$runtime/note.txt"
	for i in $(seq 6); do
		start one; order "open $dir/b.dat" ok; order 'map 0' ok; order 'store 0 two' ok; killed
	done
	rm -f "$runtime/shares"
	start one; order "open $dir/b.dat" ok; order 'map 0' ok; order 'load 0 3' new
	for i in $(seq 100); do [ "$(ls "$runtime" | wc -l)" != 4 ] || break; sleep 0.05; done
	[ "$(ls "$runtime" | wc -l)" = 4 ] || bad "it is left with $(ls "$runtime")"
	stop; is 0
	[ "$(ls -A "$runtime")" = shares ] || bad "left: $(ls -A "$runtime")"
}

t_reused() {
	claim 'entries whose numbers are others'\'' by now: of this user, of root, of a shell, of one under txmap with another file'
	fresh
	make_file a.dat o 64K; make_file b.dat o 64K
	start two; order "open $dir/b.dat" ok; order 'map 0' ok; order 'store 0 bbb' ok
	entered a.dat 1 $$ "$pid" "-$pid" 2
	start one; order "open $dir/a.dat" ok; within 5 'map 0' ok; order 'store 0 new' ok; silent
	[ "$(cat "$(registry a.dat)")" = "$pid" ] || bad "the registry says $(cat "$(registry a.dat)")"
	order msync ok; holds a.dat new
	claim 'and that one goes on'
	use two; order msync ok; holds b.dat bbb; stop; is 0
	use one; stop; is 0
	claim 'a process that became another program has nothing any more'
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 bad' ok; tell 'exec /bin/cat'
	start one; order "open $dir/a.dat" ok
	while [ "$(cat "/proc/${pids[two]}/comm")" != cat ]; do sleep 0.02; done
	within 3 'map 0' ok; order 'load 0 3' new; silent; stop; is 0
	use two; killed
}

cat >"$work/bin/peer.py" <<'PY'
# Processes that listen where one under txmap would, and behave as told; their numbers are entered for the file.
import array, fcntl, mmap, os, socket, struct, sys, time
run, path, how, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
st = os.stat(path)
pids = []
def play(c):
    if how == "hang": return time.sleep(1000)
    c.recv(100)
    fds = []
    if how == "files": fds = [os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)]
    if how == "fifos": fds = list(os.pipe())
    if how == "devices": fds = [os.open("/dev/zero", os.O_RDWR), os.open("/dev/full", os.O_RDWR)]
    if how == "empty": fds = [os.memfd_create("a"), os.memfd_create("b")]
    if how == "cut": # would be taken from under whoever maps it
        fds = [os.memfd_create("a", os.MFD_ALLOW_SEALING), os.memfd_create("b")]
        os.truncate(fds[0], 1 << 20); os.truncate(fds[1], 65536)
    if how == "random":
        fds = [os.memfd_create("a", os.MFD_ALLOW_SEALING), os.memfd_create("b")]
        os.write(fds[0], os.urandom(1 << 16)); os.truncate(fds[1], 65536)
        fcntl.fcntl(fds[0], fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    c.sendmsg([struct.pack("=IIiI", 0x68737874, 1, -2147483648 if how == "errno" else 0, len(fds))],
              [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    if how == "cut": os.truncate(fds[0], 0)
for i in range(n):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind("%s/%d.share" % (run, os.getpid())); s.listen(100)
        os.write(w, b"x")
        while True:
            c, _ = s.accept()
            try: play(c)
            except OSError: pass
            c.close()
    os.read(r, 1); pids.append(pid)
reg = "%s/share-%x-%x" % (run, st.st_dev, st.st_ino)
with open(reg, "w") as f: f.writelines("%d\n" % p for p in pids)
os.chmod(reg, 0o600)
print(*pids, flush=True)
PY
peers() { # HOW N: $others
	run python3 "$work/bin/peer.py" "$runtime" "$dir/a.dat" "$1" "$2"
	others=$out
	[ -n "$others" ] || bad "no peers: $(cat "$work/.err")"
}

t_nonsense() {
	fresh
	make_file a.dat o 64K
	local how others
	for how in files fifos devices empty cut random errno; do
		claim "one that gives what it should not: $how"
		peers $how 1
		start; order "open $dir/a.dat" ok; within 8 'map 0' EBUSY
		errs "$dir/a.dat: process $others (is of another version of txmap, or answers nonsense|has it managed)"
		[ "$(wc -l <"$err_from")" -le 2 ] || bad 'more than two lines'
		claim 'and when it is gone'
		kill -9 $others
		order 'map 0' ok; order 'store 0 new' ok; order msync ok; stop; is 0; holds a.dat new
		[ "$(ls -A "$runtime" | grep -v '\.share$')" = shares ] || bad "left: $(ls -A "$runtime")" # its parent may not have looked yet
		make_file a.dat o 64K
	done
}

t_hang() {
	claim 'thirty that accept and say nothing: a refusal after some seconds, not after a minute'
	fresh
	make_file a.dat o 64K
	local others
	peers hang 30
	start; order "open $dir/a.dat" ok; within 8 'map 0' EBUSY; errs "$dir/a.dat: process [0-9]+ has it managed, and does not answer"
	claim 'one of them that is right is found all the same, when its turn comes'
	kill -9 $others
	order 'map 0' ok; order 'store 0 one' ok
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' one; order 'store 0 two' ok; stop; is 0
	use one; order 'load 0 3' two; stop; is 0; holds a.dat two
}

t_planted() {
	claim 'what lies where the registry or the page of hints should be'
	make_file a.dat o 64K; make_file other o 4096
	local kind what f
	for what in registry shares; do for kind in fifo link directory socket; do
		fresh
		[ $what = shares ] && f=$runtime/shares || f=$(registry a.dat)
		case $kind in
		fifo) mkfifo "$f" ;;
		link) ln -s "$dir/other" "$f" ;;
		directory) mkdir "$f" ;;
		socket) python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$f" ;;
		esac
		text="$what is a $kind"
		start one; order "open $dir/a.dat" ok; within 3 'map 0' ok; order 'store 0 new' ok
		if [ $what = registry ]; then
			errs "warning: $f: .*other processes cannot share its file"; one_line
			start two; order "open $dir/a.dat" ok; within 3 'map 0' EBUSY; stop
		else
			silent
			start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' new; stop
		fi
		use one; order msync ok; holds a.dat new; order 'fill 0 3 o' ok; stop; is 0
		holds other ooo
		rm -rf "$f"
	done; done
}

t_full() {
	claim 'the runtime directory is full'
	fresh
	make_file a.dat o 64K
	local size
	for size in size=4k nr_inodes=1 nr_inodes=2 nr_inodes=3 nr_inodes=4 size=8k size=12k; do
		mount_or_skip -t tmpfs -o "$size,mode=700,uid=$([ "$who" = ordinary ] && echo 65534 || echo 0)" none "$runtime" || return
		text="the runtime directory has room for $size"
		[ "$size" != size=4k ] || head -c 4K /dev/zero >"$runtime/full"
		start one; order "open $dir/a.dat" ok; within 5 'map 0' ok; order 'store 0 new' ok
		[ "$(wc -l <"$err_from")" -le 2 ] || bad 'more than two lines'
		start two; order "open $dir/a.dat" ok; order 'map 0' 'ok|EBUSY'
		[ "$answer" = EBUSY ] || { order 'load 0 3' new; order 'store 4096 two' ok; order 'store 4096 ooo' ok; }
		start three; order "open $dir/a.dat ro" ok; order 'read 0 3' 'ooo|new'; order 'map 0 ro' 'ok|EBUSY'; stop; is 0
		use two; stop; is 0
		use one; order msync ok; holds a.dat new; order 'fill 0 3 o' ok; stop; is 0; holds a.dat ooo
		umount "$runtime"
	done
}

t_namespace() {
	claim 'one in another PID namespace, with the same runtime directory: refused, and it takes nothing away'
	[ "$who" = self ] && unshare -pf true 2>/dev/null || { echo 'not tried: another PID namespace'; return; }
	fresh
	make_file a.dat o 64K
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok
	printf '%s\n' "open $dir/a.dat" 'map 0' "open $dir/a.dat ro" 'map 0 ro' 'load 0 3' >orders
	under unshare -pf --mount-proc sh -c '"$0" <orders' "$poke"
	[ "$out" = $'ok\nEBUSY\nok\nok\nooo' ] || bad "it says $out"
	[ -S "$runtime/$pid.share" ] && [ -S "$runtime/$pid.sock" ] || bad "sockets of one that lives are gone: $(ls "$runtime")"
	[ "$(cat "$(registry a.dat)")" = "$pid" ] || bad "the registry says $(cat "$(registry a.dat)")"
	start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' new; stop; is 0
	use one; stop; is 0; holds a.dat new
}

each_user t_namespace
each_user t_litter
each_user t_reused
each_user t_nonsense
each_user t_hang
each_user t_planted
each_user t_full
exit $failed
