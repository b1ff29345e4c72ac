# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For the tests of the command. Source it: a fresh directory $work (the current one), gone at the end; $txmap; and
#
#	claim TEXT		what the next checks are about
#	run CMD...		runs it: $status, $out, $err
#	is STATUS		the last one's exit status
#	says / errs PATTERN	its stdout / stderr matches (grep -E)
#	start CMD...		in the background, under txmap; $pid. It writes a line to the file "ready" when it is.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
txmap=$top/build/txmap
unset LD_PRELOAD ${!TXMAP_@}
export LC_ALL=C
work=$(mktemp -d "${TMPDIR:-/var/tmp}/txmap-cli.XXXXXX")
mkdir -m 700 "$work/xdg"
export XDG_RUNTIME_DIR=$work/xdg
cd "$work" || exit 1
failed=0 text='' started=()

finish() {
	local p
	for p in "${started[@]}"; do kill -9 "$p" 2>/dev/null; done
	cd / && rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

claim() { text=$1; }
bad() {
	failed=1
	printf 'FAILED: %s: %s\n  status %s\n' "$text" "$1" "$status"
	sed 's/^/  stdout: /' "$work/.out"
	sed 's/^/  stderr: /' "$work/.err"
}
run() {
	status=0
	timeout 60 "$@" >"$work/.out" 2>"$work/.err" </dev/null || status=$?
	out=$(cat "$work/.out")
	err=$(cat "$work/.err")
}
is() { [ "$status" = "$1" ] || bad "exit status is not $1"; }
says() { grep -qE -- "$1" "$work/.out" || bad "stdout does not say $1"; }
errs() { grep -qE -- "$1" "$work/.err" || bad "stderr does not say $1"; }
silent() { [ ! -s "$work/.err" ] || bad "stderr is not empty"; }
holds() { # FILE BYTES: FILE begins with BYTES
	[ "$(head -c ${#2} "$1")" = "$2" ] || bad "$1 does not begin with $2 but with $(head -c ${#2} "$1" | tr '\0' .)"
}

# A program that stores "new" at the start of the file $1, says so, and waits for a line on its stdin.
cat >"$work/store.py" <<'EOF'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
for line in sys.stdin:
    what, _, text = line.strip().partition(" ")
    if what == "store":
        m[0:len(text)] = text.encode()
    print(m[0:3].decode("latin1"), flush=True)
EOF

# start FILE [TXMAP RUN OPTION...]: store.py on FILE; order TEXT sends it a line and waits for its answer in $answer.
start() {
	local file=$1
	shift
	mkfifo to.$$ from.$$
	"$txmap" run --path "$work/*.dat" "$@" -- python3 "$work/store.py" "$file" <to.$$ >from.$$ 2>"$work/program.err" &
	pid=$!
	started+=("$pid")
	exec 7>to.$$ 8<from.$$
	rm -f to.$$ from.$$
}
order() {
	echo "$1" >&7
	read -r -t 20 answer <&8 || bad "the program does not answer: $(cat "$work/program.err")"
}
stop() {
	exec 7>&- 8<&-
	wait "$pid"
}
