#!/bin/bash
# SPDX-License-Identifier: MIT
# gold, lld and mold write their output through a mapping of a temporary file that is renamed; the result is run.
. "$(dirname "$0")/lib.sh"
need gcc

t_link() { # LINKER
	# The directory's name would be in the output.
	local debug="-g -fdebug-prefix-map=$dir=."
	plain cp "$src/hello.c" "$src/foo.c" .
	plain gcc $debug -c hello.c foo.c
	for again in 1 2; do
		run gcc -fuse-ld="$1" hello.o foo.o -o a.out
		run ./a.out
		plain ./a.out
		bytes a.out
		run gcc -fuse-ld="$1" -shared foo.o -o libfoo.so
		bytes libfoo.so
	done
	run gcc -fuse-ld="$1" $debug hello.c foo.c -Wl,--build-id=sha1 -o b.out
	run strip b.out
	run ./b.out
	bytes b.out
}
for ld in bfd gold lld mold; do
	need ld.$ld
	eval "t_link_$ld() { t_link $ld; }"
	same link_$ld
done
done_same
