#!/bin/bash
# SPDX-License-Identifier: MIT
# mandb: gdbm with a temporary file that is renamed over the database; then updates in place.
. "$(dirname "$0")/lib.sh"
need mandb
need accessdb

pages() { # FROM TO: as many manual pages, in $dir/m; their times are in the database
	mkdir -p "$dir/m/man1"
	for ((i = $1; i <= $2; i++)); do
		printf '.TH P%d 1\n.SH NAME\np%d, alias%d \\- page number %d\n' $i $i $i $i >"$dir/m/man1/p$i.1"
	done
	touch -d '2024-01-02 03:04:05' "$dir"/m/man1/*.1 "$dir/m/man1"
	[ "$who" = self ] || chown -R 65534:65534 "$dir/m"
}
t_index() {
	pages 1 "$(count 30 300)"
	run env MANPATH=m mandb -q m
	run accessdb m/index.db
	plain accessdb m/index.db
	# Pages come and go: the database is changed where it is.
	rm -f "$dir"/m/man1/p1*.1
	pages 3000 3005
	run env MANPATH=m mandb -q m
	plain accessdb m/index.db
	run env MANPATH=m mandb -c -q m
	plain accessdb m/index.db
	plain ls -A m
}
same index
done_same
