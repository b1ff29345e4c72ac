#!/bin/bash
# SPDX-License-Identifier: MIT
# Rules that match too much: our own files, and the code that runs, are never managed; rules that overlap.
. "$(dirname "$0")/lib.sh"

t_own_files() {
	claim 'a journal'
	set="log=info"
	make_file a.dat x 8192
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok; order unmap ok
	order "open $dir/.a.dat.txmap ro" ok; order 'map 4096 ro' ok; order 'load 0 1' .
	errs "info: $dir/.a.dat.txmap: never managed: it is a journal"
	quiet 'txmap: managed'
	stop; is 0; holds a.dat one
	claim 'the log, which the program reads and maps'
	set="log=info log_file=$dir/log.txt"
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order unmap ok
	order "open $dir/log.txt" ok; order 'map 4096' ok
	order 'load 0 6' 'txmap.*'
	grep -q "log.txt: never managed: it is the log" log.txt || bad "the log says $(cat log.txt)"
	order 'store 0 T' ok
	stop; is 0; silent
	holds log.txt Txmap
	claim 'the control socket and its directory'
	mkdir -m 700 run; [ "$who" != ordinary ] || chown 65534:65534 run
	set="runtime_dir=$dir/run"
	start
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 two' ok
	run env TXMAP_RUNTIME_DIR="$dir/run" "$txmap" commit "$pid"; is 0; silent
	holds a.dat two
	stop; is 0; silent
	claim 'what is in that directory'
	set="runtime_dir=$dir/run log=info"
	start
	order "open $dir/run/shares" ok; order 'map 0' ok; order 'load 0 1' .
	errs "info: $dir/run/shares: never managed: it is a list of who shares what"
	stop; is 0
	[ "$(ls -A run)" = shares ] || bad "left: $(ls -A run)"
}

t_code() {
	claim 'the program itself, and a library that it has'
	mkdir code
	cp "$poke" code/poke
	cp "$(ldd /bin/true | sed -n 's/.*libc.so.6 => \([^ ]*\).*/\1/p')" code/libc.so.6
	chmod 755 code/*; [ "$who" != ordinary ] || chown -R 65534 code
	printf '%s\n' "open $dir/code/poke ro" 'map 4096 ro' 'load 1 3' "open $dir/code/libc.so.6 ro" 'map 4096 ro' 'load 1 3' 'exit 0' >orders
	set='log=info'
	under sh -c 'LD_LIBRARY_PATH="$1/code" exec "$1/code/poke" <orders' sh "$dir"
	is 0
	[ "$out" = $'ok\nok\nELF\nok\nok\nELF' ] || bad 'it does not work'
	errs "$dir/code/poke: never managed: it is code"
	errs "$dir/code/libc.so.6: never managed: it is code"
	claim 'a library that it does not have is a file like any other: a linker writes one'
	printf '%s\n' "open $dir/code/poke ro" 'map 4096 ro' 'load 1 3' "open $dir/code/libc.so.6" 'map 0' 'store 0 new' msync 'exit 0' >orders
	under sh -c 'exec "$1" <orders' sh "$poke"
	is 0; errs "$dir/code/libc.so.6: managed by rule"; quiet 'never managed'
	holds code/libc.so.6 newF
}

t_overlap() {
	claim 'the first rule that matches is the one, that of the environment before all'
	make_file a.dat x 8192; make_file b.dat x 8192; make_file c.dat x 8192; make_file d.dat x 8192
	cat >conf <<E
[rule one]
path = $dir/a*
path = $dir/c*
path = !$dir/c*
log = info
[rule two]
path = $dir/a.dat
path = $dir/b.dat
commit = none
[rule three]
path = $dir/**
E
	grep -v ^log conf >conf2; mv conf2 conf
	local f
	for f in a:one b:two c:three d:environment; do
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/conf" TXMAP_PATHS="$dir/d.dat" TXMAP_LOG=info TXMAP_RUNTIME_DIR="$runtime" \
			sh -c "printf 'open $dir/${f%:*}.dat\nmap 0\nexit 0\n' | $poke"
		is 0
		[ "${f#*:}" = environment ] || errs "${f%:*}.dat: managed by rule '${f#*:}'"
		[ "$(grep -c 'managed by rule' "$err_from")" = 1 ] || bad 'it is managed more than once, or not'
	done
	quiet "managed by rule '(one|two|three)'"
}

each t_own_files
each t_code
each_user t_overlap
exit $failed
