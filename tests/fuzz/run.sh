#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs a fuzzer: first what its corpus has, then what it makes of that. An input that must not be stays in
# build/fuzz/found, to be looked at and put into the corpus.
#
#	tests/fuzz/run.sh NAME SECONDS
set -u
cd "$(dirname "$0")/../.." || exit 1
name=$1 seconds=$2
[ -x "build/fuzz/$name" ] || { echo "build/fuzz/$name is not there: make fuzz"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/txmap-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p build/fuzz/found
# what the corpus has that reaches something new would be kept in $work
ASAN_OPTIONS=detect_leaks=0 "build/fuzz/$name" -max_len=20480 -timeout=20 -rss_limit_mb=512 -max_total_time="$seconds" \
	-artifact_prefix="build/fuzz/found/$name-" "$work" "tests/fuzz/corpus/$name" >"$work.log" 2>&1
status=$?
grep -a '^Done' "$work.log" || tail -n 40 "$work.log"
rm -f "$work.log"
exit $status
