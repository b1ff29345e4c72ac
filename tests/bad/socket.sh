#!/bin/bash
# SPDX-License-Identifier: MIT
# The control socket and clients that are not what they should be; the directory it lies in.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

cat >"$work/bin/talk.py" <<'PY'
# talk.py SOCKET HOW...: what came back
import socket, sys, threading, time, json
path, how = sys.argv[1], sys.argv[2]
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(path); return s
def all_of(s):
    out = b""
    try:
        while True:
            b = s.recv(65536)
            if not b: break
            out += b
    except ConnectionResetError: out += b"(reset)"
    return out.decode("latin1")
def ask(s, text):
    try: s.sendall(text.encode() + b"\n")
    except BrokenPipeError: pass # it may have said why before
    out = b""
    while not out.endswith(b"\n"):
        b = s.recv(65536)
        if not b: break
        out += b
    return out.decode("latin1").strip()
if how == "ask":
    s = connect()
    for line in sys.argv[3:]: print(ask(s, line))
elif how == "raw":
    s = connect(); s.sendall(sys.argv[3].encode().decode("unicode_escape").encode("latin1")); s.shutdown(socket.SHUT_WR); print(all_of(s))
elif how == "mebibyte":
    s = connect()
    try: s.sendall(b"commit " + b"x" * (1 << 20) + b"\n")
    except OSError as e: print(e)
    print(all_of(s))
elif how == "close": # half a line, then gone
    s = connect(); s.sendall(b"comm"); s.close()
elif how == "silent": # half a line, then nothing; the others are served
    held = [connect() for i in range(int(sys.argv[3]))]
    for s in held: s.sendall(b"comm")
    t = time.time()
    print(ask(connect(), "ping"))
    print("quick" if time.time() - t < 5 else "slow")
    left = held[-1]
    try:
        left.sendall(b"it\n"); print(left.recv(4096).decode().strip() or "(closed)")
    except OSError as e: print("(closed)")
elif how == "many":
    n, bad = int(sys.argv[3]), []
    def one(i):
        try:
            s = connect()
            for k in range(20):
                r = json.loads(ask(s, ("ping", "status", "commit", "nonsense")[(i + k) % 4]))
                if r["ok"] != ((i + k) % 4 != 3): bad.append(r)
        except Exception as e: bad.append(repr(e))
    ts = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    [t.start() for t in ts]; [t.join() for t in ts]
    print("all served" if not bad else bad[:5])
elif how == "deaf": # asks and never reads
    s = connect()
    s.settimeout(0.5)
    try:
        while True: s.sendall(b"status\n" * 1000)
    except OSError: pass
    t = time.time()
    print(ask(connect(), "ping"))
    print("quick" if time.time() - t < 5 else "slow")
PY
talk() { run python3 "$work/bin/talk.py" "$runtime/$pid.sock" "$@"; }
begin() {
	set="commit=msync $*"
	make_file a.dat o 64K
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok
}
alive() { order 'load 0 3' "${1:-new}"; } # the program goes on, and nothing was stored

t_requests() {
	begin
	claim 'requests that are wrong get one line each, and the connection goes on'
	talk ask nonsense '' ' ' 'commit a b' 'invalidate' 'invalidate rel' "invalidate $dir/a.dat 1" "invalidate $dir/a.dat -1 1" \
		"invalidate $dir/a.dat 1x 1" "invalidate $dir/a.dat 1G 1" 'commit /nowhere' 'commit %zz' 'commit %00' 'set' 'set commit none' 'set log loud' \
		'snapshot /a /b' 'PING' "$(printf 'ping\tx')" ping
	is 0
	[ "$(grep -c '"ok":false,"errno":"E[A-Z]*","error":"..*"' "$work/.out")" = 19 ] || bad 'not 19 refusals'
	[ "$(tail -1 "$work/.out" | grep -c '"ok":true')" = 1 ] || bad 'ping was not answered'
	says 'nonsense: unknown request; allowed: status commit'; says '/nowhere: no managed file matches'
	python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$work/.out" || bad 'not JSON'
	alive; holds a.dat ooo
	claim 'bytes that are no text'
	talk raw '\x00\x00\n'; says '"ok":false'
	talk raw 'pi\x00ng\n'; says '"ok":false'
	talk raw '\xff\xfe\x80\n'; says '"ok":false'
	talk raw '\n\n\n\n'; says '"ok":false'
	talk raw 'ping\r\n'; says '"ok":true'
	talk raw 'ping\nping\nping\n'; [ "$(grep -c '"ok":true' "$work/.out")" = 3 ] || bad 'not three answers'
	claim 'a line of 1 MiB is refused'
	talk mebibyte; says 'EMSGSIZE'; quiet Traceback
	claim 'half a line, then the end'
	talk raw 'ping'; says 'half a request'
	talk close; is 0
	talk raw ''; is 0
	claim 'half a line, then silence: the others are served'
	talk silent 3; says '"ok":true'; says quick
	talk silent 12; says '"ok":true'; says quick
	talk deaf; says '"ok":true'; says quick
	alive
	claim '50 clients at once'
	order 'store 0 two' ok
	talk many 50; says 'all served'
	holds a.dat two; alive two
	stop; is 0; silent
	[ ! -e "$runtime/$pid.sock" ] || bad 'the socket stays'
}

t_strangers() {
	[ "$(id -u)" = 0 ] || return
	begin
	claim 'another user is refused, root is served'
	local other=65533
	chmod 711 "$runtime" # even when the way is open
	chmod 777 "$runtime/$pid.sock"
	run setpriv --reuid=$other --regid=$other --clear-groups true
	local was=$who
	who=self
	run setpriv --reuid=$other --regid=$other --clear-groups python3 "$work/bin/talk.py" "$runtime/$pid.sock" ask ping commit
	says '"errno":"EPERM"'; says 'only the same user and root'
	run python3 "$work/bin/talk.py" "$runtime/$pid.sock" ask ping; says '"ok":true'
	who=$was
	chmod 700 "$runtime"
	holds a.dat ooo; alive
	stop
}

t_directory() {
	claim 'a stale socket file is replaced, and what is no socket is left alone'
	begin
	local sock
	sock=$runtime/$pid.sock
	killed
	[ -S "$sock" ] || bad 'no stale socket'
	rm -f "$sock"
	local kind
	for kind in symlink world group foreign file missing; do
		claim "a socket directory that is $kind: no socket, one warning, and the program works"
		local where=$dir/rt-$kind
		case $kind in
		symlink) mkdir -m 700 "$where.real"; ln -s "$where.real" "$where" ;;
		world) mkdir "$where"; chmod 777 "$where" ;;
		group) mkdir "$where"; chmod 770 "$where" ;;
		foreign) [ "$(id -u)" = 0 ] || continue; mkdir -m 700 "$where" ;;
		file) : >"$where" ;;
		missing) where=$dir/no/where ;;
		esac
		[ "$who" != ordinary ] || [ ! -e "$where" ] || chown 65534 "$where" "$where.real" 2>/dev/null
		[ $kind != foreign ] || chown 65533 "$where"
		begin "runtime_dir=$where"
		errs "warning: no control socket: $where: "; one_line
		order msync ok; holds a.dat new
		[ ! -d "$where" ] || [ -z "$(ls -A "$where")" ] || bad "something is in it: $(ls -A "$where")"
		run env TXMAP_RUNTIME_DIR="$where" "$txmap" commit "$pid"; is 3
		stop; is 0; one_line
	done
	claim 'XDG_RUNTIME_DIR that is unset, missing, relative, or another'\''s'
	local xdg
	for xdg in '' "$dir/none" 'relative' '/root' "$dir"; do
		settings
		make_file a.dat o 4096
		printf 'open %s\nmap 0\nstore 0 new\nmsync\n' "$dir/a.dat" >orders
		run env -u XDG_RUNTIME_DIR LD_PRELOAD="$so" TXMAP_PATHS="$dir/**" ${xdg:+XDG_RUNTIME_DIR="$xdg"} \
			sh -c '"$0" <orders' "$poke"
		text="XDG_RUNTIME_DIR=$xdg"
		is 0; [ "$out" = $'ok\nok\nok\nok' ] || bad 'the program does not work'
		holds a.dat new
		[ "$(wc -l <"$work/.err")" -le 1 ] || bad 'more than one line'
	done
	rm -rf "/tmp/txmap-65534" "$dir/txmap" 2>/dev/null
}

t_stopped() {
	claim 'a stopped program: the command says so instead of waiting for ever'
	begin
	kill -STOP "$pid"
	lib_limit=10
	txmap status "$pid"; is 1; errs "pid $pid"
	txmap commit "$pid"; is 1; errs "pid $pid: .*stopped"; one_line
	txmap commit --all; is 1; errs "pid $pid: .*stopped"
	txmap invalidate --path "$dir/a.dat"; is 1
	kill -CONT "$pid"
	lib_limit=120
	alive
	txmap commit "$pid"; is 0; holds a.dat new
	stop
	claim 'a request while the program ends: an answer or "ended", never a hang'
	local i
	for i in 1 2 3 4 5 6 7 8; do
		begin
		(sleep "0.0$i"; kill -TERM "$pid") &
		while txmap status "$pid"; [ $status = 0 ]; do :; done
		[ $status = 3 ] || [ $status = 1 ] || bad 'neither ended nor gone'
		ended
	done
	claim 'no process at all'
	txmap commit --all; is 3; one_line
	txmap discard --all; is 3
	txmap invalidate --all; is 3
	txmap status --all; is 0
	txmap commit $$; is 3; errs "pid $$ "; one_line
	txmap commit 999999999; is 3
	txmap commit --path '/nowhere/**'; is 3; errs '/nowhere/'
	txmap commit 0; is 2
	txmap commit -- -5; is 2
	txmap commit 12abc; is 2
	txmap commit 99999999999999999999; is 2
	txmap commit; is 2
	txmap commit 1 2; is 2
}

each_user t_requests
each_user t_strangers
each_user t_directory
each_user t_stopped
exit $failed
