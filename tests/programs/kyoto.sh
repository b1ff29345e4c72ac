#!/bin/bash
# SPDX-License-Identifier: MIT
# Kyoto Cabinet maps 64 MiB over a small file, which ftruncate grows below the mapping again and again; it never calls
# msync. Its tests look at their own results; they print times, and the wicked ones take random keys.
. "$(dirname "$0")/lib.sh"
need kchashtest

few=$(count 500 4000)
many=$(count 1000 8000)
verdict() { grep -aE '^(ok|status [0-9]|error|[0-9]+ records)|fail|rror:'; }

checked() { says 'records were checked successfully' | grep -a 'records were' | sed 's/^[0-9]* records/N records/'; }

t_hash() {
	run kchashtest order c.kch "$many" | verdict
	run kchashtest order -set c.kch "$many" | verdict
	run kchashtest order -get c.kch "$many" | verdict
	run kchashmgr check c.kch
	bytes c.kch
	run kchashtest order -rnd -etc d.kch "$many" | verdict
	run kchashmgr check d.kch | checked
	run kchashtest wicked -th 2 e.kch "$few" | verdict
	run kchashtest wicked -it 2 f.kch "$few" | verdict
	run kchashtest tran -th 2 g.kch "$few" | verdict
	for f in c d e f g; do plain kchashmgr check $f.kch | checked; done
}
t_tree() {
	run kctreetest order c.kct "$many" | verdict
	run kctreetest order -set c.kct "$many" | verdict
	run kctreetest order -get c.kct "$many" | verdict
	run kctreemgr check c.kct
	bytes c.kct
	run kctreetest order -rnd d.kct "$many" | verdict
	run kctreetest wicked -th 2 e.kct "$few" | verdict
	run kctreetest tran f.kct "$few" | verdict
	for f in c d e f; do plain kctreemgr check $f.kct | checked; done
}
t_manager() {
	run kchashmgr create c.kch
	for k in 1 2 3 4 5; do run kchashmgr set c.kch key$k "value $k"; done
	run kchashmgr remove c.kch key2
	run kchashmgr list -pv c.kch
	run kchashmgr defrag c.kch
	run kchashmgr dump c.kch snap
	run kchashmgr load d.kch snap
	run kchashmgr clear c.kch
	plain kchashmgr list -pv d.kch
	bytes c.kch d.kch
}
for t in hash tree manager; do
	same $t
done
done_same
