#!/bin/bash
# SPDX-License-Identifier: MIT
# What libtxmap.so brings into a program: only the names of shim/calls.def, only the libraries that it must, next to
# no static TLS, nothing that an older libc lacks.
#
#	scripts/exports.sh [SO]
set -u
cd "$(dirname "$0")/.." || exit 1
so=${1:-build/libtxmap.so}
export LC_ALL=C
failed=0
bad() { echo "exports: $*"; failed=1; }
[ -e "$so" ] || { bad "$so is not built"; exit 1; }

# Comments out of the two tables, then every identifier in them. An upper-case macro name does no harm: nothing exports one.
named=$(cat shim/calls.def shim/lend.def | ${CC:-gcc} -fpreprocessed -dD -E -P -x c - | grep -oE '[A-Za-z_][A-Za-z0-9_]*' | sort -u)
exported=$(nm -D --defined-only "$so" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u)
[ -n "$exported" ] || bad "$so exports nothing"
for name in $(comm -13 <(echo "$named") <(echo "$exported")); do
	bad "$name is exported but neither in shim/calls.def nor in shim/lend.def"
done

for lib in $(readelf -dW "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
	case $lib in
	libc.so.6 | libpthread.so.0 | libdl.so.2 | libunwind.so.8 | ld-linux-*.so.*) ;;
	*) bad "needs $lib" ;;
	esac
done

# The loader has little static TLS left for an object that arrives by LD_PRELOAD or dlopen.
tls=$(readelf -lW "$so" | awk '$1 == "TLS" { print $6 }')
[ $((${tls:-0})) -lt 64 ] || bad "PT_TLS has $((tls)) bytes, 64 are too many"

undefined=$(nm -D --undefined-only "$so" | awk '{ print $NF }')
for name in $(grep -E '_chk(@|$)' <<<"$undefined"); do
	bad "uses $name: another libc may not have it"
done
newest=$(grep -oE '@GLIBC_[0-9.]+' <<<"$undefined" | sed 's/.*_//' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" 2.34 | sort -V | tail -n 1)" = 2.34 ] ||
	bad "uses $(grep "@GLIBC_$newest\$" <<<"$undefined" | tr '\n' ' '): newer than glibc 2.34"

dynamic=$(readelf -dW "$so")
grep -q TEXTREL <<<"$dynamic" && bad 'has text relocations'
grep -qE 'RPATH|RUNPATH' <<<"$dynamic" && bad 'has a library search path'
grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$dynamic" || bad 'is bound lazily: a first call in a signal handler would enter the loader'
readelf -lW "$so" | grep -q 'GNU_STACK.*RWE' && bad 'wants an executable stack'

[ $failed != 0 ] || echo "$(wc -l <<<"$exported") names, glibc up to $newest, TLS $((${tls:-0})) bytes"
exit $failed
