#!/bin/bash
# SPDX-License-Identifier: MIT
# gawk's persistent heap: a MAP_SHARED file at a fixed address in which everything is allocated; never an msync. Its
# bytes hold addresses that differ from run to run, so what it prints is compared.
. "$(dirname "$0")/lib.sh"
need gawk

t_heap() {
	plain truncate -s 64M heap
	run env GAWK_PERSIST_FILE=heap gawk 'BEGIN { x["a"] = 41 }'
	run env GAWK_PERSIST_FILE=heap gawk 'BEGIN { print x["a"] + 1 }'
	plain env GAWK_PERSIST_FILE=heap gawk 'BEGIN { print x["a"] + 1 }'
	run env GAWK_PERSIST_FILE=heap gawk 'BEGIN { for (i = 0; i < 50000; i++) x[i] = i * i; for (i = 0; i < 50000; i += 2) delete x[i] }'
	plain env GAWK_PERSIST_FILE=heap gawk 'BEGIN { for (i in x) { n++; s += x[i] } print n, s; x["b"] = "native" }'
	run env GAWK_PERSIST_FILE=heap gawk 'BEGIN { print x["b"], length(x); exit 3 }'
}
# The program ends with exit 3 there: a status is part of what is compared.
may_fail=1 same heap
done_same
