#!/bin/bash
# SPDX-License-Identifier: MIT
# A file, or a mapping of one, that cannot be made longer or shorter: the program has its errno and everything as it was,
# and the log says what was tried, with both sizes and the errno.
. "$(dirname "$0")/lib.sh"

t_a_mapping_that_cannot_grow() {
	claim 'mremap beyond the address space'
	set='log=info'
	make_file a.dat o 64K
	printf '%s\n' "open $dir/a.dat rw" 'map 0' 'store 70 new' 'remap 1024G' 'load 70 3' 'store 80 more' 'msync' 'exit 0' >orders
	under sh -c 'exec prlimit --as=2000000000 "$0" <orders' "$poke"
	is 0
	[ "$out" = $'ok\nok\nok\nENOMEM\nnew\nok\nok' ] || bad 'it is not as it was'
	errs 'a.dat: mremap from 65536 to 1099511627776 bytes: ENOMEM'
	holds a.dat new 70
	holds a.dat more 80
}

t_a_file_that_cannot_grow() {
	claim 'ftruncate beyond RLIMIT_FSIZE'
	set='log=info'
	make_file a.dat o 64K
	printf '%s\n' "open $dir/a.dat rw" 'map 0' 'store 70 new' 'truncate 8M' 'size' 'load 70 3' 'msync' 'exit 0' >orders
	under sh -c 'trap "" XFSZ; exec prlimit --fsize=4000000 "$0" <orders' "$poke"
	is 0
	[ "$out" = $'ok\nok\nok\nEFBIG\n65536\nnew\nok' ] || bad 'it is not as it was'
	errs 'a.dat: resize from 65536 to 8388608: EFBIG'
	holds a.dat new 70
}

each t_a_mapping_that_cannot_grow
each t_a_file_that_cannot_grow
exit $failed
