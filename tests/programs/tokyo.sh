#!/bin/bash
# SPDX-License-Identifier: MIT
# Tokyo Cabinet maps 64 MiB over a small file, ftruncate grows it below the mapping and cuts it at the end; pread and
# pwrite beside the mapping. Its tests look at their own results. They print times, and some take random keys (tcftest
# wicked fails natively with some).
. "$(dirname "$0")/lib.sh"
need tchtest

few=$(count 500 5000)
many=$(count 2000 20000)
facts() { grep -aE "^(record number|size|ok|status [0-9]|error)|fail|rror:"; }
verdict() { grep -aE "^(ok|status [0-9]|error)|fail|rror:"; }

t_hash() {
	run tchtest write c.tch "$many" | facts
	bytes c.tch
	run tchtest read c.tch | facts
	run tchmgr inform c.tch | grep -vE 'time|inode'
	run tchtest remove c.tch | facts
	run tchtest misc d.tch "$few" | verdict
	run tchtest wicked e.tch "$few" | verdict
	run tchmttest write m.tch 3 "$few" | facts
	run tchmttest read m.tch 3 | verdict
	run tchmttest typical n.tch 3 "$few" | verdict
	for f in ./*.tch; do plain tchmgr list "$f" >/dev/null; done
}
t_tree() {
	run tcbtest write c.tcb "$many" | facts
	bytes c.tcb
	run tcbtest read c.tcb | facts
	run tcbtest remove c.tcb | facts
	run tcbtest misc d.tcb "$few" | verdict
	run tcbtest wicked e.tcb "$few" | verdict
	run tcbmttest write m.tcb 3 "$few" | verdict
}
t_fixed() {
	run tcftest write c.tcf "$many" 100 | facts
	bytes c.tcf
	run tcftest read c.tcf | facts
	run tcftest misc d.tcf "$few" | verdict
	run tcftest rcat e.tcf "$few" | verdict
}
t_table() {
	run tcttest write c.tct "$few" | verdict
	run tcttest read c.tct | verdict
	run tcttest misc d.tct "$few" | verdict
	run tcttest wicked e.tct "$few" | verdict
}
# A transaction writes ahead into a file of its own beside the database.
t_transactions() {
	run tchtest write -as c.tch 100 | facts
	run tchmgr put c.tch key value
	run tchmgr put -dc c.tch key more
	run tchmgr optimize c.tch
	run tchmgr list -pv c.tch
	bytes c.tch
}
for t in hash tree fixed table transactions; do
	same $t
done
done_same
