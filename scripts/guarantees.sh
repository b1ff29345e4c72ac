#!/bin/bash
# SPDX-License-Identifier: MIT
# Does each row of docs/guarantees.md name tests, are there such tests, and are they run? A test is `FILE:NAME`: a function of
# tests/FILE.c or .sh that is used there, too, or what a claim of tests/FILE.sh begins with.
#
#	scripts/guarantees.sh [FILE]
set -u
cd "$(dirname "$0")/.." || exit 1
doc=${1:-docs/guarantees.md}
failed=0 nrows=0 ntests=0
bad() { echo "$doc: $1"; failed=1; }

check() { # FILE:NAME
	local name=${1#*:} src
	ntests=$((ntests + 1))
	for src in "tests/${1%%:*}.c" "tests/${1%%:*}.sh" ''; do [ ! -e "$src" ] || break; done
	[ -n "$src" ] || { bad "there is no tests/${1%%:*}.c or .sh"; return; }
	case $name in
	*[!a-zA-Z0-9_]*) grep -qF "claim '$name" "$src" || bad "$src has no claim '$name...'" ;;
	*)
		local users=("$src")
		grep -qE "^((static )?void )?$name\(" "$src" || bad "$src has no test $name"
		! grep -qE "^void $name\(" "$src" || users=("${src%/*}"/*.c) # whoever can see it
		[ "$(cat "${users[@]}" | grep -cwF "$name")" -gt 1 ] || grep -qE "^for t in .*\b${name#t_}\b" "$src" ||
			bad "$src: $name is not run"
		;;
	esac
}

while IFS='|' read -r _ event _ _ tests _; do
	case $event in *---* | ' event ') continue ;; esac
	nrows=$((nrows + 1))
	[[ $tests == *\`* ]] || bad "no test for:$event"
	while [[ $tests =~ \`([^\`]*)\` ]]; do
		check "${BASH_REMATCH[1]}"
		tests=${tests#*"${BASH_REMATCH[0]}"}
	done
done < <(grep '^|' "$doc")
[ $nrows -gt 0 ] || bad 'no rows: nothing was checked'
echo "$nrows rows, $ntests tests"
exit $failed
