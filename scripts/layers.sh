#!/bin/bash
# SPDX-License-Identifier: MIT
# The layering, checked over the symbol tables of the objects:
#
#	core    defines vm_*    calls no pol_*, no shim_*
#	policy  defines pol_*   calls no shim_*
#	cli     (policy/cli) as policy
#	shim    defines shim_* and the names that libtxmap.so exports;  calls no vm_*
#
# and nothing in libtxmap.so calls a name that libtxmap.so exports: such a call would enter our own wrapper.
#
#	scripts/layers.sh [map] [LAYER=OBJECT ...]
#
# map prints the crossings. LAYER=OBJECT adds an object, as if it were built from that layer.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
# This is a tool over files; the names it exports must not depend on the locale's sorting.
export LC_ALL=C

map=
[ "${1:-}" != map ] || { map=1; shift; }

so=$B/libtxmap.so
[ -e "$so" ] || { echo "layers: $so is not built" >&2; exit 1; }
exported=$(nm -D --defined-only "$so" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u)

objects() { # LAYER: its objects (only of sources that exist) and those added by hand
	local dir=$1 src a
	[ "$1" != cli ] || dir=policy/cli
	for src in "$dir"/*.c; do
		[ ! -e "$B/${src%.c}.o" ] || echo "$B/${src%.c}.o"
	done
	for a in "${added[@]}"; do
		[ "${a%%=*}" != "$1" ] || echo "${a#*=}"
	done
}
added=("$@")

# One line per global symbol: "LAYER OBJECT def|use NAME".
symbols=$(for layer in core policy cli shim; do
	# nm -A says "OBJECT:VALUE TYPE NAME", without the value when the symbol is used and not defined.
	# shellcheck disable=SC2046 # names of ours, without blanks
	nm -gA $(objects $layer) /dev/null 2>/dev/null | sed "s|^$B/||" | awk -v l=$layer '{
		o = $1; sub(/:.*/, "", o)
		print l, o, ($1 ~ /:$/ ? "use" : "def"), $NF }'
done)

printf '%s\n' "$symbols" | awk -v exported="$exported" -v map="$map" '
function bad(text) { print "layers: " text; nbad++ }
function owner(name) { return name ~ /^vm_/ ? "core" : name ~ /^pol_/ ? "policy" : name ~ /^shim_/ ? "shim" : "" }
BEGIN { n = split(exported, e, "\n"); for (i = 1; i <= n; i++) is_exported[e[i]] = 1 }
$3 == "def" {
	own["core"] = "^vm_"; own["policy"] = "^pol_"; own["cli"] = "^(pol_|cli_|main$)"; own["shim"] = "^shim_"
	if ($4 !~ own[$1] && !($1 == "shim" && ($4 in is_exported)))
		bad($2 " defines " $4 ": a global name of " $1 " matches " own[$1])
	if ($1 != "cli")
		nobjects[$1]++
}
$3 == "use" {
	o = owner($4)
	if (o == "shim" && $1 != "shim")
		bad($2 " calls up to " $4)
	else if (o == "policy" && $1 == "core")
		bad($2 " calls up to " $4)
	else if (o == "core" && $1 == "shim")
		bad($2 " skips policy and calls " $4)
	else if (o != "" && o != $1 && !(($1, $4) in seen)) {
		seen[$1, $4] = 1
		names[$1 " -> " o] = names[$1 " -> " o] "\n\t" $4
		count[$1 " -> " o]++
	}
	if ($1 != "cli" && ($4 in is_exported))
		bad($2 " calls " $4 ", which libtxmap.so exports")
}
END {
	for (l in own)
		if (l != "cli" && !nobjects[l])
			bad("no objects of " l ": nothing was checked")
	if (!length(own))
		bad("no objects: nothing was checked")
	order = split("shim -> policy;policy -> core;cli -> policy;cli -> core", c, ";")
	for (i = 1; i <= order; i++)
		if (map)
			printf "%s (%d)%s\n", c[i], count[c[i]], names[c[i]]
		else if (!nbad)
			printf "%s: %d names\n", c[i], count[c[i]]
	exit nbad != 0
}'
