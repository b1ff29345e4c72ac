#!/bin/bash
# SPDX-License-Identifier: MIT
# The generator under txmap: random operations on files and mappings against a model.
#
#	tests/fsx/run.sh ENGINE LOAD OPS SEED [ARG...]
#
# ENGINE uffd, segv, or native (without txmap: what the model says is what the kernel does); LOAD lazy, eager or auto.
# ARGs are the generator's: --size BYTES, --threads N, --shrink SECONDS, --keep LIST, --verbose.
# only_users=ordinary|self: not as both; keep=1: leave the files there.
set -u
. "$(dirname "$0")/../../scripts/lib.sh"
[ $# -ge 4 ] || lib_die 'needs ENGINE LOAD OPS SEED'
engine=$1 load=$2 ops=$3 seed=$4
shift 4
lib_begin "fsx-$engine-$load"
cp "${fsx:-$top/build/tests/fsx/fsx}" "$work/bin/fsx" || exit 1
lib_limit=${limit:-600}
failed=0

for who in $users; do
	lib_dir "$who" "$engine"
	lib_set="TXMAP_LOAD=$load"
	args=(--seed "$seed" --ops "$ops")
	[ "$engine" = native ] || args+=(--control "$runtime")
	lib_in "$who" "$engine" "$work/bin/fsx" "${args[@]}" "$@" >"$work/out" 2>&1
	status=$?
	sed "s/^/$engine $load $who: /" "$work/out"
	[ $status = 0 ] || { failed=1; echo "as $who: status $status (124: it took too long)"; }
done
exit $failed
