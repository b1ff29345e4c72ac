#!/bin/bash
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo 'no numpy (python3-numpy)'; exit 77; }

t_memmap() {
	run /usr/bin/python3 "$src/numpy_memmap.py"
	bytes a.dat b.npy g.dat
}
same memmap
done_same
