#!/bin/bash
# SPDX-License-Identifier: MIT
# Streams that are the C library's own on a file that is mapped: refused, or said. Those of fopen and fdopen are ours.
. "$(dirname "$0")/lib.sh"
stream=$work/bin/stream

t_freopen() {
	claim 'a stream of something else is to be one of a mapped file'
	make_file a.dat x 8192
	under "$stream" mapped a.dat; is 0
	errs '^freopen: EOPNOTSUPP'; errs '^mapping: nxxx'; errs "error: $dir/a.dat: freopen: the file is mapped"
	holds a.dat nxxx
	[ "$(stat -c %s a.dat)" = 8192 ] || bad 'it was truncated'
	claim 'a file with such a stream is mapped'
	make_file a.dat x 8192
	under "$stream" stream a.dat; is 0
	errs '^freopen: ok'; errs "warning: $dir/a.dat: .*freopen'd: .*passes the mapping by"
	holds a.dat nxxx
	claim 'a mapped file is standard output'
	make_file a.dat x 8192
	under sh -c 'exec "$1" plain a.dat >>a.dat' sh "$stream"; is 0
	errs "warning: $dir/a.dat: is mapped, and standard"
	holds a.dat nxxx
	claim 'any other file is not spoken of'
	under sh -c 'exec "$1" plain a.dat >b.dat' sh "$stream"; is 0
	silent
}

each t_freopen
exit $failed
