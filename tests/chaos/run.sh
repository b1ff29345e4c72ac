#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes that store, commit, fork and are killed at random over four files, and a checker that knows what may be seen.
#
#	tests/chaos/run.sh ENGINE SECONDS [SEED]
#
# ENGINE uffd, segv, or native (without txmap: what the checker demands, the kernel gives). only_users=ordinary|self: not as both.
# load=lazy: pages are loaded on touch. at_violation=COMMAND: run while all processes are still there. What is found wrong is
# kept, and where is said.
set -u
. "$(dirname "$0")/../../scripts/lib.sh"
[ $# -ge 2 ] || lib_die 'needs ENGINE SECONDS'
engine=$1 seconds=$2 seed=${3:-$(date +%s)$RANDOM}
lib_begin "chaos-$engine"
keep=1
cp "${chaos:-$top/build/tests/chaos/chaos}" "$work/bin/chaos" || exit 1
lib_limit=$((seconds + 120))
failed=0

for who in $users; do
	lib_dir "$who" "$engine"
	books=$work/books-$who
	mkdir -m 777 "$books"
	args=(--seconds "$seconds" --seed "$seed" --runtime "$runtime")
	[ "$engine" = native ] || args+=(--preload "$so" --txmap "$txmap")
	[ -z "${at_violation:-}" ] || args+=(--at-violation "$at_violation")
	set_there="CHAOS_LEDGER=$books/ledger TXMAP_PATHS=$work/files/** TXMAP_RUNTIME_DIR=$runtime"
	[ "$engine" = native ] || set_there+=" TXMAP_ENGINE=$engine TXMAP_LOAD=${load:-auto} ${more:-}"
	# shellcheck disable=SC2086 # a list of words
	(set -f; lib_native "$who" env $set_there "$work/bin/chaos" "${args[@]}") >"$work/out" 2>&1
	status=$?
	grep -v '^seed' "$work/out" | head -n 60
	sed -n "s/^seed/chaos $engine $who: &/p" "$work/out"
	[ $status = 0 ] || { failed=1; echo "as $who: status $status (124: it hung)"; }
done
exit $failed
