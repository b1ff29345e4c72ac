#!/bin/bash
# SPDX-License-Identifier: MIT
# A systemd journal: windows of the file are mapped as they are needed, fallocate extends it, ftruncate punches the tail.
. "$(dirname "$0")/lib.sh"
remote=/lib/systemd/systemd-journal-remote
[ -x $remote ] || skip 'no systemd-journal-remote (for make programs)'
need journalctl

# In the export format.
awk -v n="$(count 500 20000)" 'BEGIN {
	while (length(xs) < 200) xs = xs "x"
	for (i = 1; i <= n; i++) {
		printf "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032d\n", 17e14 + i, i, 1
		printf "MESSAGE=%s number %d\nPRIORITY=%d\n\n", substr(xs, 1, i % 200), i, i % 8
	}
}' >"$work/bin/entries"
t_import() {
	run $remote --output=j.journal - <"$work/bin/entries" | sed 's/[0-9.]*[KM]B//'
	run journalctl --file j.journal -q -o cat | sha256sum
	plain journalctl --file j.journal -q -o cat | sha256sum
	plain journalctl --file j.journal --verify 2>&1 | says PASS | sed 's/.*\(PASS\).*/\1/; /[0-9]%/d'
	run $remote --output=j.journal - <"$work/bin/entries" | sed 's/[0-9.]*[KM]B//'
	plain journalctl --file j.journal -q -o cat | wc -l
	run journalctl --file j.journal -q -o cat PRIORITY=3 | sha256sum
}
same import
done_same
