#!/bin/bash
# SPDX-License-Identifier: MIT
# A Berkeley DB environment: regions mapped shared, with mutexes in them, their descriptors closed; then the tables.
# Regions and file numbers differ from run to run, so what the tables hold is compared.
. "$(dirname "$0")/lib.sh"
need db5.3_verify
[ -x "$src/bdb_load" ] || skip 'bdb_load was not built (libdb5.3-dev)'

t_environment() {
	run mkdir e
	run "$src/bdb_load" e "$(count 100 300)"
	plain db5.3_verify -h e t.db
	run db5.3_dump -p -h e t.db | sha256sum
	run db5.3_stat -h e -d t.db | grep -v 'Local time'
	run db5.3_checkpoint -1 -h e
	run db5.3_recover -h e
	run db5.3_verify -h e t.db
	plain db5.3_dump -p -h e t.db | sha256sum
	# The next one joins, and recovers, what the last one left.
	run "$src/bdb_load" e 50
	run db5.3_recover -c -h e
	plain db5.3_verify -h e t.db
	plain db5.3_dump -p -h e t.db | sha256sum
	plain ls e
}
t_without() {
	seq 1 "$(count 2000 20000)" | sed 's/.*/key&\nvalue&&&&/' | run db5.3_load -T -t hash h.db
	seq 1 "$(count 2000 20000)" | sed 's/.*/key&\nvalue&&&&/' | run db5.3_load -T -t btree b.db
	run db5.3_verify h.db b.db
	plain db5.3_verify h.db b.db
	run db5.3_dump -p b.db | sha256sum
	plain db5.3_dump -p h.db | sha256sum
}
same environment
same without
done_same
