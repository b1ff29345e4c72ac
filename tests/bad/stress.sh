#!/bin/bash
# SPDX-License-Identifier: MIT
# Everything at once: twenty threads on one file, a thousand files, and kill -9 in the middle. seconds=N: for so long.
. "$(dirname "$0")/lib.sh"
stress=$work/bin/stress
seconds=${seconds:-6}

t_threads() {
	claim 'twenty threads that store, sync, read, write, map, fork, and ask'
	make_file a.dat x $((9 * 128 * 4096 + (1 << 20)))
	# the words begin at zero
	python3 -c '
f = open("a.dat", "r+b")
for s in range(9):
    for w in range(2):
        for i in range(64): f.seek((s * 128 + w * 64 + i) * 4096 + i % 500 * 8); f.write(bytes(8))'
	cp a.dat b.dat
	printf x | dd of=b.dat bs=1 seek=$((65 * 4096 + 8)) conv=notrunc 2>/dev/null
	run "$stress" check b.dat; is 1 # a test of the checker
	run "$stress" check a.dat; is 0
	rm b.dat
	lib_limit=$((seconds + 60))
	under "$stress" run "$dir/a.dat" "$seconds" 2 "$runtime"
	is 0; silent
	echo "$who $engine: $out"
	run "$stress" check a.dat; is 0
	claim 'the same without forks, killed with -9'
	local i p
	for i in 1 2 3; do
		settings
		(as env "${vars[@]}" "$stress" run "$dir/a.dat" 60 0 "$runtime" >"$work/.out" 2>"$work/.err") & p=$!
		until grep -qs running "$work/.out"; do sleep 0.02; kill -0 $p || break; done
		sleep "0.$((i * 3))"
		kill -9 $p; wait $p 2>/dev/null; status=$?
		is 137; err_from=$work/.err; quiet 'WRONG|BUG'
		txmap recover a.dat; is 0
		run "$stress" check a.dat; is 0
	done
	lib_limit=120
}

t_many() {
	claim 'children of a killed process do not keep its file'
	make_file a.dat x $((9 * 128 * 4096 + (1 << 20)))
	local i p
	for i in 1 2 3; do
		settings
		(as env "${vars[@]}" "$stress" run "$dir/a.dat" 60 2 "$runtime" >"$work/.out" 2>"$work/.err") & p=$!
		until grep -qs running "$work/.out"; do sleep 0.02; kill -0 $p || break; done
		sleep "0.$((i * 3))"
		kill -9 $p; wait $p 2>/dev/null
		for _ in $(seq 100); do # for a moment they do
			txmap recover a.dat
			[ $status != 0 ] && grep -q 'in use' "$work/.err" || break
			sleep 0.1
		done
		is 0
	done
	rm a.dat
	claim '1000 managed files at once'
	under sh -c 'ulimit -n 20000 2>/dev/null || ulimit -n "$(ulimit -Hn)"; exec "$@"' sh "$stress" many "$dir" 1000
	is 0; says '^1000 files, 0 wrong'; silent
	[ "$(ls -A | wc -l)" = 1000 ] || bad "left: $(ls -A | grep -c txmap) journals"
	for i in 0 1 500 999; do holds $i.dat "file $i"; done
}

command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }
each t_threads
each t_many
exit $failed
