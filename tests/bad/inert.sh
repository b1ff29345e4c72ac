#!/bin/bash
# SPDX-License-Identifier: MIT
# Where no rule matches: no thread, no file, no signal handler, no message, and every program is as it was.
. "$(dirname "$0")/lib.sh"

begin() { # the ways to be there with nothing to do
	printf '[rule one]\npath = /nowhere/**\n' >conf
	ways=(
		''
		'TXMAP_COMMIT=none TXMAP_LOG=debug'
		'TXMAP_PATHS=/nowhere/*.dat'
		'TXMAP_PATHS=/nowhere/*.dat TXMAP_ENGINE=segv TXMAP_LOAD=lazy TXMAP_COMMIT=interval:1s,term'
		"TXMAP_CONFIG=$dir/conf TXMAP_LOG=info TXMAP_LOG_FILE=$dir/the-log"
	)
}
idle() { # WAY CMD...: a runtime directory that is not there yet
	local way=$1
	shift
	# shellcheck disable=SC2086 # words
	run env LD_PRELOAD="$so" TXMAP_RUNTIME_DIR="$dir/run" $way "$@"
}
prints() { # CMD...: natively, and each way: the same on stdout, nothing on stderr, the same status
	run "$@"
	local want=$out native=$status way
	[ ! -s "$err_from" ] || bad 'natively it complains'
	for way in "${ways[@]}"; do
		idle "$way" "$@"
		if [ "$status" != "$native" ] || [ "$out" != "$want" ]; then bad "with '$way': natively status $native, and: $want"; fi
		silent
		[ ! -e run ] && [ ! -e the-log ] || bad "with '$way': left: $(ls -A)"
	done
}

t_nothing() {
	begin
	make_file mapped.dat o 8192
	claim 'no thread, no signal handler, none blocked or ignored'
	prints grep -E '^(Threads|Sig[^Q]|Shd)' /proc/self/status
	prints sh -c 'ls /proc/$$/task | wc -l'
	claim 'no descriptor'
	prints ls /proc/self/fd
	command -v python3 >/dev/null || return
	claim 'the same with files mapped, stored into and committed, in several threads, and after a fork'
	cat >maps.py <<'PY'
import mmap, os, signal, threading
def look():
    while len(os.listdir("/proc/self/task")) > 1: pass # who was joined may not be gone yet
    fds = [os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)]
    status = [l for l in open("/proc/self/status") if l[:3] in ("Sig", "Shd") and l[3] != "Q"]
    os.write(1, b"%d %d %r\n" % (len([f for f in fds if "mapped.dat" in f]), len(fds), status)) # whole, beside the other's
fd = os.open("mapped.dat", os.O_RDWR); m = mmap.mmap(fd, 0)
def work():
    for i in range(50): m[i] = i; m.flush(); os.pread(fd, 10, 0)
t = [threading.Thread(target=work) for i in range(3)]
[x.start() for x in t]; [x.join() for x in t]
look(); pid = os.fork(); look()
if pid: os.waitpid(pid, 0)
PY
	# the two that fork prints come in any order, but are the same
	prints python3 maps.py
	claim 'and nothing of ours is in its address space but the library'
	idle "${ways[2]}" python3 -c 'print([l for l in open("/proc/self/maps") if "memfd" in l or "userfaultfd" in l or "shares" in l])'
	is 0; says '^\[\]$'; silent
}

t_programs() {
	begin
	claim 'ls, bash, sed, awk, find, cat'
	prints ls -a /usr /etc/passwd
	prints bash -c 'f() { echo "$((1 + 2)) $1"; }; trap "echo bye" EXIT; x=$(f "a b"); echo "$x" | cat; cat <(echo c)'
	prints sed -n 1p /etc/passwd
	prints awk 'BEGIN { "echo x" | getline y; print y, 6 * 7 }'
	prints find /etc/passwd /bin/sh -maxdepth 0
	if command -v git >/dev/null; then
		claim git
		prints sh -c 'rm -rf repo && git init -q repo && cd repo && echo a >a && git add a && GIT_AUTHOR_DATE="@1000000000 +0000" GIT_COMMITTER_DATE="@1000000000 +0000" \
			git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%H && git fsck 2>&1 && git gc -q && git show --stat HEAD'
	fi
	if command -v gcc >/dev/null; then
		claim gcc
		prints sh -c 'printf "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n" >h.c && gcc -o h h.c && ./h'
	fi
	if command -v python3 >/dev/null; then
		claim python3
		prints python3 -c 'import ctypes, json, subprocess, sqlite3; print(json.dumps([1]), subprocess.check_output(["echo", "x"]),
			sqlite3.connect(":memory:").execute("select 1").fetchall())'
	fi
}

each_user t_nothing
each_user t_programs
exit $failed
