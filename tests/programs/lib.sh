# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# A real program does the same natively and under txmap, with each engine, as root and as an ordinary user.
# A test sources this, defines functions, and calls `same FUNCTION` for each:
#
#	t_FUNCTION()	the work, in $dir: `run CMD` is the program under test (natively, or under txmap), `plain
#			CMD` is never under txmap: what another program sees in the files. All they print counts.
#
# Compared are the output, the exit statuses, and the names of the files left in $dir: a journal that outlives
# its process is a difference. `bytes FILE...` adds the contents, for programs that are deterministic.
#
# full=1: larger counts, and programs whose packages `make check` does not install.

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

lib_begin "programs-$(basename "$0" .sh)"
cp "$top"/tests/programs/src/* "$work/bin/"
src=$work/bin
for f in "$top"/build/tests/programs/*; do
	[ ! -x "$f" ] || [ -d "$f" ] || cp "$f" "$work/bin/"
done
chmod -R a+rX "$work/bin"
[ -z "${full:-}" ] || lib_limit=900 # for one program
failures=0

run() {
	lib_in "$who" "$how" "$@" 2>&1
	local status=$?
	[ $status = 0 ] || echo "status $status"
}
plain() {
	lib_in "$who" native "$@" 2>&1
	local status=$?
	[ $status = 0 ] || echo "status $status"
}
bytes() { plain sha256sum "$@"; }

same() {
	local name=$1
	for who in $users; do
		how=native
		lib_dir "$who" "$name-native"
		{ "t_$name"; ls -A "$dir"; } >"$work/want"
		for how in $engines; do
			lib_dir "$who" "$name-$how"
			{ "t_$name"; ls -A "$dir"; } >"$work/got"
			if cmp -s "$work/want" "$work/got"; then
				echo "same: $name as $who, engine=$how"
			else
				failures=$((failures + 1))
				echo "DIFFERENT: $name as $who, engine=$how (status 124: it hung); native and ours:"
				diff -a "$work/want" "$work/got" | head -n 30
			fi
			[ -n "${keep:-}" ] || rm -rf "$dir"
		done
		# A test whose native run already fails shows nothing.
		if grep -aq '^status [0-9]' "$work/want" && [ -z "${may_fail:-}" ]; then
			failures=$((failures + 1))
			echo "natively $name fails:"
			tail -n 20 "$work/want"
		fi
	done
}

skip() { echo "$1"; exit 77; }
need() { command -v "$1" >/dev/null || skip "no $1 here"; }
# count QUICK FULL: how much to do.
count() { if [ -n "${full:-}" ]; then echo "$2"; else echo "$1"; fi; }
# ... | says PATTERN: a filter for a program that tells only with words that all is well.
says() { awk -v pattern="$1" '{ print } $0 ~ pattern { ok = 1 } END { if (!ok) print "status 1: nothing says " pattern }'; }
done_same() { exit $((failures > 0)); }
