#!/bin/bash
# SPDX-License-Identifier: MIT
# gdbm: to grow it unmaps, writes zeros, and maps the whole file again, with no msync between; reorganize
# builds a new file and renames it over.
. "$(dirname "$0")/lib.sh"
need gdbmtool

t_reorganize() {
	run /usr/bin/python3 "$src/gdbm_fill.py" a.gdbm c 3000
	plain sh -c 'echo count | gdbmtool -q a.gdbm'
	bytes a.gdbm
	run sh -c 'echo count | gdbmtool -q a.gdbm'
	run gdbmtool -q a.gdbm recover verbose summary
	plain gdbmtool -q a.gdbm recover verbose summary
	run /usr/bin/python3 "$src/gdbm_fill.py" a.gdbm w 1000
	bytes a.gdbm
}
t_updates() {
	run /usr/bin/python3 "$src/gdbm_load.py" write k.gdbm 100
	plain /usr/bin/python3 "$src/gdbm_load.py" verify k.gdbm
	bytes k.gdbm
}
t_gdbmtool() {
	run gdbmtool -q -n b.gdbm store key value \; store key2 value2 \; delete key \; list
	plain gdbmtool -q b.gdbm list
	bytes b.gdbm
}
same reorganize
same updates
same gdbmtool
done_same
