#!/bin/bash
# SPDX-License-Identifier: MIT
# docs/fidelity.md against the tests: every row says "same" or "differs", and names tests that exist; every program of
# tests/preload is the proof of some row.
set -u
cd "$(dirname "$0")/.." || exit 1
doc=docs/fidelity.md
failed=0
wrong() { echo "fidelity: $*"; failed=1; }

ops=$(grep -ohE '\{"[a-z_0-9]+", [0-9]+, [a-z_0-9]+\}' tests/fsx/ops_*.c | cut -d'"' -f2)
[ -n "$ops" ] || wrong 'no operations found in tests/fsx'

exists() { # WORD: is it a test, or another proof that a row may name?
	local f
	for f in "tests/preload/$1.c" "tests/bad/$1" "tests/core/$1.c" "tests/policy/$1.c" "$1" "$1.c" "docs/man/$1"; do
		[ ! -e "$f" ] || return 0
	done
	case $1 in
	ctor | fsx | '`--threads`') return 0 ;;
	esac
	grep -qxF "$1" <<<"$ops"
}

rows=0 proofs=' '
while IFS='|' read -r section family outcome proof rest; do
	family=${family# } family=${family% } outcome=${outcome# }
	case $family in family | program | ---*) continue ;; esac
	rows=$((rows + 1))
	[ -z "${rest// /}" ] && [ -n "${proof// /}" ] || { wrong "not three columns: $family"; continue; }
	case $outcome in
	same* | differs*) ;;
	*) wrong "neither same nor differs: $family" ;;
	esac
	[ "$section" != Programs ] || continue
	proof=$(sed -E 's/\([^)]*\)//g; s/, / /g' <<<"$proof")
	set -f # buffers_* stands for all of them
	for word in $proof; do
		set +f
		if [[ $word == *_\* ]]; then
			for f in tests/preload/$word.c; do f=${f##*/}; proofs+="${f%.c} "; done
			word=${f%.c}
		fi
		exists "$word" || wrong "no such test: $word (of: $family)"
		proofs+="$word "
	done
	set +f
done < <(awk '/^## /{section=$2} /^\|/{print section $0}' "$doc")
[ $rows -gt 40 ] || wrong "only $rows rows found in $doc"

for t in tests/preload/*.c; do
	t=${t##*/} t=${t%.c}
	[[ $proofs == *" $t "* ]] ||
		wrong "tests/preload/$t.c is the proof of no row"
done
exit $failed
