#!/bin/bash
# SPDX-License-Identifier: MIT
# CPython's own tests of its mmap module: resize, offsets, sparse files over 4 GiB, copy-on-write.
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 -c 'import test.test_mmap' 2>/dev/null || { echo 'no test.test_mmap (libpython3.*-testsuite)'; exit 77; }

t_test_mmap() {
	run /usr/bin/python3 -m unittest -v test.test_mmap | sed 's/ in [0-9.]*s$//'
}
same test_mmap
grep -q '^Ran [1-9]' "$work/want" || { cat "$work/want"; exit 1; }
done_same
