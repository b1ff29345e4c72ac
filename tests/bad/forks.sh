#!/bin/bash
# SPDX-License-Identifier: MIT
# Forks while threads store and commit (forks.c): what a child added is in the file, and a child that goes on alone has helper
# threads and a control socket of its own.
#
#	tests/bad/forks.sh [N]		forks for each engine and user
set -u
. "$(dirname "$0")/../../scripts/lib.sh"
lib_begin forks
cp "$top/build/tests/bad/forks" "$work/bin/" || exit 1
n=${1:-120}
lib_limit=${limit:-120}
failed=0

adds_of() { od -An -t u8 -j $((8 * 4096)) -N 8 "$dir/forks.dat" | tr -d ' '; }
for who in $users; do
	lib_dir "$who" native
	echo "native $who: $(lib_native "$who" "$work/bin/forks" "$dir/forks.dat" "$n")"
	[ "$(adds_of)" = "$n" ] || { failed=1; echo "native: in the file are $(adds_of)"; }
	for engine in $engines; do
		lib_dir "$who" "$engine"
		out=$(lib_txmap "$who" "$engine" "$work/bin/forks" "$dir/forks.dat" "$n" "$runtime" 2>&1)
		status=$?
		echo "$engine $who: $out"
		[ $status = 0 ] && [ "$(adds_of)" = "$n" ] && [ "$(ls -A "$dir")" = forks.dat ] && continue
		failed=1
		echo "$engine as $who: status $status (124: it hung); in the file are $(adds_of) adds, not $n; left: $(ls -A "$dir")"
	done
done
exit $failed
