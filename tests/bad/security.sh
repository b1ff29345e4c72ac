#!/bin/bash
# SPDX-License-Identifier: MIT
# Another user of the machine, with a shell: what it plants, connects to, locks or answers gives it no access, leads nowhere else,
# and makes nobody wait for longer than is said. It is uid 65533 ($who is root or uid 65534).
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { echo 'not tried: another user, who only root can be'; exit 77; }
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

other() {
	local was=$who
	who=self
	run setpriv --reuid=65533 --regid=65533 --clear-groups "$@"
	who=$was
}
other_starts() { # CMD...: in the background; its pid is $theirs
	setpriv --reuid=65533 --regid=65533 --clear-groups "$@" &
	theirs=$!
}
open_dir() { # the directory that everybody may write to; MODE
	chmod "${1:-1777}" "$dir"
}

t_sockets() {
	claim 'another user reaches neither socket, nor the list of who has what'
	make_file a.dat o 64K; chmod 600 a.dat
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 secret' ok
	local f
	[ "$(stat -c %a "$runtime")" = 700 ] || bad 'the directory is open'
	other ls "$runtime"; [ "$status" != 0 ] || bad 'it sees the directory'
	for f in "$runtime"/*; do
		[ -S "$f" ] || [ "$(stat -c %a "$f")" = 600 ] || bad "$f is $(stat -c %a "$f")"
	done
	claim 'and if the user lets it in by mistake, it is told no, and gets no descriptor'
	chmod 711 "$runtime"; chmod 777 "$runtime/$pid.sock" "$runtime/$pid.share"
	cat >"$work/bin/ask.py" <<'PY'
import array, os, socket, struct, sys
run, pid, path = sys.argv[1:]
st = os.stat(path)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(10); s.connect("%s/%s.share" % (run, pid))
try:
    s.send(struct.pack("=IIQQII", 0x68737874, 1, st.st_dev, st.st_ino, 1, 0))
except OSError: pass # it said no already
try:
    data, anc, flags, _ = s.recvmsg(100, socket.CMSG_SPACE(64))
    print("share", struct.unpack("=IIiI", data)[2:], len(anc))
except ConnectionResetError: print("share no") # without having looked at what was asked
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect("%s/%s.sock" % (run, pid))
try:
    s.send(b"commit\n")
except OSError: pass
print(s.recv(1000).decode())
PY
	other python3 "$work/bin/ask.py" "$runtime" "$pid" "$dir/a.dat"
	is 0; says 'share (\(-1, 0\) 0|no)'; says '"errno":"EPERM"'
	holds a.dat oooooo
	claim 'the user itself gets two descriptors by the same question, and so does root'
	chmod 700 "$runtime"
	run python3 "$work/bin/ask.py" "$runtime" "$pid" "$dir/a.dat"
	says 'share \(0, 2\) 1'; says '"ok":true'; holds a.dat secret
	status=0; python3 "$work/bin/ask.py" "$runtime" "$pid" "$dir/a.dat" >"$work/.out" || status=$?
	says 'share \(0, 2\) 1'
	claim 'nor does it get at the memory by /proc'
	other sh -c "cat /proc/$pid/fd/* /proc/$pid/map_files/*"; quiet '^$'; [ ! -s "$work/.out" ] || bad 'it reads something'
	stop; is 0
}

t_runtime() {
	claim 'a runtime directory that another user planted is not used: nobody is found in there, nor told anything'
	open_dir
	make_file a.dat o 64K
	local mine=$runtime kind
	for kind in theirs open link; do
		runtime=$dir/rt-$kind
		case $kind in
		theirs) other mkdir -m 700 "$runtime" ;;
		open) other mkdir -m 777 "$runtime" ;;
		link) other mkdir -m 777 "$runtime.real"; other ln -s "$runtime.real" "$runtime" ;;
		esac
		text="a runtime directory that is $kind"
		start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; errs "warning: no control socket: $runtime"; one_line
		start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs "EBUSY"
		order "open $dir/a.dat ro" ok; order 'map 0 ro' ok; order 'load 0 3' ooo
		stop; use one; order msync ok; holds a.dat new; order 'fill 0 3 o' ok; stop; is 0
		[ -z "$(find "$dir"/rt-"$kind"*/ -mindepth 1 2>/dev/null)" ] || bad "something is in it: $(find "$dir"/rt-"$kind"*/)"
	done
	runtime=$mine
	claim 'XDG_RUNTIME_DIR of another user is left alone'
	mkdir -m 777 theirs; chown 65533 theirs; chmod 777 theirs
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 xdg' msync >orders
	run env LD_PRELOAD="$so" TXMAP_PATHS="$dir/**" XDG_RUNTIME_DIR="$dir/theirs" sh -c '"$0" <orders' "$poke"
	is 0; holds a.dat xdg
	[ -z "$(ls -A theirs)" ] || bad "left: $(ls -A theirs)"
}

t_journal() {
	local kind j=$dir/.a.dat.txmap
	for kind in link fifo directory file empty socket huge hard hardempty; do
		claim "a journal that another user planted: $kind"
		rm -rf "$dir"/* "$dir"/.a*; open_dir
		make_file a.dat o 64K
		make_file mine m 4096; make_file none m 0
		chmod 600 mine none
		case $kind in
		link) other ln -s "$dir/mine" "$j" ;;
		fifo) other mkfifo -m 666 "$j" ;;
		directory) other mkdir -m 777 "$j" ;;
		file) other sh -c "echo nonsense >$j; chmod 666 $j" ;;
		empty) other sh -c ": >$j; chmod 666 $j" ;;
		huge) other sh -c "truncate -s 1T $j; chmod 666 $j" ;;
		socket) other python3 -c 'import socket,sys,os; socket.socket(socket.AF_UNIX).bind(sys.argv[1]); os.chmod(sys.argv[1],0o777)' "$j" ;;
		# where the kernel has no protected_hardlinks
		hard) ln mine "$j" ;;
		hardempty) ln none "$j" ;;
		esac
		start; order "open $dir/a.dat" ok
		lib_t=$SECONDS; order 'map 0' 'E.*'; [ $((SECONDS - lib_t)) -lt 10 ] || bad 'it took long'
		errs "$j"; [ "$(wc -l <"$err_from")" -le 2 ] || bad 'more than two lines'
		stop; is 0
		holds a.dat ooo; holds mine mmm; [ ! -s none ] || bad 'the empty file is not empty'
		[ "$(stat -c %a mine none)" = $'600\n600' ] || bad 'modes changed'
		rm -rf "$j"
		start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok; stop; is 0; holds a.dat new
	done
}

t_locked() {
	claim 'a journal of its own that another user holds locked is not waited for'
	open_dir 777; make_file a.dat o 64K # where the kernel has no protected_regular
	cat >"$work/bin/hold.py" <<'PY'
import fcntl, os, sys, time
f = os.open(sys.argv[1], int(sys.argv[2]) | os.O_CREAT, 0o666)
if int(sys.argv[2]): os.fchmod(f, 0o666)
fcntl.flock(f, fcntl.LOCK_EX if int(sys.argv[2]) else fcntl.LOCK_SH)
fcntl.lockf(f, fcntl.LOCK_EX if int(sys.argv[2]) else fcntl.LOCK_SH, 1) if int(sys.argv[3]) else 0
os.mkdir(sys.argv[4]); time.sleep(100)
PY
	other_starts python3 "$work/bin/hold.py" "$dir/.a.dat.txmap" 2 1 "$dir/held"
	while [ ! -e held ]; do sleep 0.05; done
	lib_t=$SECONDS
	start; order "open $dir/a.dat" ok; order 'map 0' EPERM; errs 'belongs to another user'
	[ $((SECONDS - lib_t)) -lt 10 ] || bad 'it took long'
	stop; is 0; kill "$theirs"; wait "$theirs" 2>/dev/null; rm -rf held .a.dat.txmap
	claim 'who may read the file can lock its journal: a refusal, not a wait for ever'
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok; killed
	chmod 644 .a.dat.txmap
	other_starts python3 "$work/bin/hold.py" "$dir/.a.dat.txmap" 0 0 "$dir/held"
	while [ ! -e held ]; do sleep 0.05; done
	start; order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs EBUSY
	kill "$theirs"; wait "$theirs" 2>/dev/null
	order 'map 0' ok; order 'load 0 3' new
	stop; is 0
}

t_modes() {
	claim 'nobody reads the journal who may not read the file'
	local m
	for m in 600 640 644 660 666; do
		make_file a.dat o 64K; chmod $m a.dat
		start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok
		[ "$(stat -c %a .a.dat.txmap)" = $m ] || bad "a file of mode $m has a journal of $(stat -c %a .a.dat.txmap)"
		[ "$(stat -c %u:%g .a.dat.txmap)" = "$(stat -c %u:%g a.dat)" ] || bad 'another owner'
		claim "nor after the file was closed to others (from $m)"
		chmod 600 a.dat; order 'store 0 two' ok; order msync ok
		[ "$(stat -c %a .a.dat.txmap)" = 600 ] || bad "the journal stays $(stat -c %a .a.dat.txmap)"
		killed
		chmod 644 .a.dat.txmap # one that a crash left
		start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 end' ok; order msync ok
		[ "$(stat -c %a .a.dat.txmap)" = 600 ] || bad "the old journal stays $(stat -c %a .a.dat.txmap)"
		stop; is 0; holds a.dat end
	done
}

t_two_users() {
	claim 'two users, one file: the second is refused for writing, and reads the last commit; it shares nothing'
	open_dir 755
	make_file a.dat o 64K; chmod 666 a.dat
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok; order 'store 0 not' ok
	mkdir -p -m 700 "$work/run-other"; chown 65533 "$work/run-other"
	printf '%s\n' "open $dir/a.dat" 'map 0' "open $dir/a.dat ro" 'map 0 ro' 'load 0 3' >orders
	local way
	for way in "$work/run-other" "$runtime"; do # its own; the first one's, which only root gets into
		other env LD_PRELOAD="$so" TXMAP_PATHS="$dir/**" TXMAP_RUNTIME_DIR="$way" sh -c '"$0" <orders' "$poke"
		is 0; [ "$out" = $'ok\nEBUSY\nok\nok\nnew' ] || bad "it says $out"; errs "another user"
	done
	order 'load 0 3' not; order msync ok; holds a.dat not
	claim 'root in the runtime directory of a user finds no overlay either, and does not disturb'
	if [ "$who" = ordinary ]; then
		status=0
		env LD_PRELOAD="$so" TXMAP_PATHS="$dir/**" TXMAP_RUNTIME_DIR="$runtime" sh -c '"$0" <orders' "$poke" >"$work/.out" 2>"$work/.err" || status=$?
		err_from=$work/.err out=$(cat "$work/.out")
		is 0; [ "$out" = $'ok\nEBUSY\nok\nok\nnot' ] || bad "it says $out"
		errs 'no control socket|another user'
		start two; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' not; stop; is 0
		use one
	fi
	order 'store 0 end' ok; stop; is 0; holds a.dat end
}

t_command() {
	claim 'what another user lets its socket say: no orders to the terminal, no wait without end, no link to a service of root'
	[ "$who" = self ] || return
	local rt=/tmp/txmap-65533
	rm -rf "$rt"; other mkdir -m 700 "$rt"
	cat >"$work/bin/say.py" <<'PY'
import os, socket, sys, time
path, how = sys.argv[1:]
s = socket.socket(socket.AF_UNIX); s.bind("%s/%d.sock" % (path, os.getpid())); s.listen(5); os.mkdir(path + "/there")
while True:
    c, _ = s.accept(); c.recv(1000)
    try:
        if how == "escape": c.send(b'{"ok":false,"errno":"EIO","error":"\\u001b[2J\\u009b2J gotcha"}\n')
        else:
            c.send(b'{"ok":true,"x":"')
            while True: c.send(b"x" * (1 << 20))
    except OSError: pass
PY
	local how
	for how in escape flood; do
		other_starts python3 "$work/bin/say.py" "$rt" $how
		while [ ! -e "$rt/there" ]; do sleep 0.05; done
		lib_limit=25
		run env XDG_RUNTIME_DIR=/nowhere "$txmap" commit "$theirs"
		lib_limit=120
		is 1; one_line
		[ $how != escape ] || { errs gotcha; quiet $'\033|\302\233'; }
		kill "$theirs"; wait "$theirs" 2>/dev/null; rm -rf "$rt"/*
	done
	python3 - "$dir/root.sock" >"$dir/asked" <<'PY' &
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(5); s.settimeout(60)
c, _ = s.accept(); print("asked:", c.recv(100))
PY
	local service=$!
	while [ ! -e root.sock ]; do sleep 0.05; done
	other ln -s "$dir/root.sock" "$rt/4711.sock"
	run env XDG_RUNTIME_DIR=/nowhere "$txmap" commit 4711; is 1; errs 'not permitted'
	wait "$service"; [ "$(cat asked)" = "asked: b''" ] || bad "the service of root was $(cat asked)"
	rm -rf "$rt"
}

t_secure() {
	claim 'a set-user-ID program is inert, also where the loader lets the library in'
	[ "$who" = self ] && command -v unshare >/dev/null || return
	local place=/usr/lib/$(uname -m)-linux-gnu/libmemusage.so
	make_file a.dat o 64K; chmod 666 a.dat; open_dir 777
	cp "$poke" "$dir/poke"; chown 65534 "$dir/poke"; chmod 4755 "$dir/poke"
	cp "$so" "$dir/lib.so"; chmod 4755 "$dir/lib.so"
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 new' 'exit 0' >orders
	other env LD_PRELOAD="$so" TXMAP_PATHS="$dir/**" TXMAP_COMMIT=none TXMAP_LOG=debug sh -c '"$0" <orders' "$dir/poke"
	is 0; holds a.dat new
	[ -e "$place" ] && unshare -m true 2>/dev/null || { echo 'not tried: no place the loader trusts'; return; }
	sed s/new/two/ orders >orders2
	run unshare -m sh -c "mount --bind $dir/lib.so $place && LD_PRELOAD=libmemusage.so TXMAP_PATHS='$dir/**' TXMAP_COMMIT=none exec $poke <orders2"
	is 0; holds a.dat new # there it is loaded, and works
	run unshare -m sh -c "mount --bind $dir/lib.so $place && setpriv --reuid=65533 --regid=65533 --clear-groups \
		env LD_PRELOAD=libmemusage.so TXMAP_PATHS=nonsense TXMAP_COMMIT=none TXMAP_LOG_FILE=$dir/log $dir/poke <orders2"
	holds a.dat two; quiet nonsense
	[ ! -e log ] || bad 'it wrote a log'
}

each_user t_sockets
each_user t_runtime
each_user t_journal
each_user t_locked
each_user t_modes
each_user t_two_users
each_user t_command
each_user t_secure
exit $failed
