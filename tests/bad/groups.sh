#!/bin/bash
# SPDX-License-Identifier: MIT
# scope=group: the files of a rule commit together, all of them or none.
. "$(dirname "$0")/lib.sh"

conf() { printf '%s\n' "$@" >"$dir/t.conf"; chmod 644 "$dir/t.conf"; }
# A process with a.dat, b.dat and sub/c.dat, as its files 0, 1 and 2.
group() { # NAME [SETTING...]
	local n=$1
	shift
	glob="$dir/**.dat" set="scope=group $*"
	start "$n"
	order "open $dir/a.dat" ok; order 'map 0' ok
	order 'file 1' ok; order "open $dir/b.dat" ok; order 'map 0' ok
	order 'file 2' ok; order "open $dir/sub/c.dat" ok; order 'map 0' ok
	order 'file 0' ok
}
store() { # TEXT OFF: into each
	local k
	for k in 2 1 0; do order "file $k" ok; order "store $2 $1" ok; done
}
hold() { local f; for f in a.dat b.dat sub/c.dat; do holds $f "$1" "$2"; done; } # TEXT OFF: each does
make_files() { mkdir sub; chmod 777 sub; local f; for f in a.dat b.dat sub/c.dat; do make_file $f x 64K; done; }
sweep() { # what the killed left in the runtime directory goes when somebody manages a file
	rm -f "$runtime/shares" # it knows when that was done last
	mkdir swept
	[ "$who" != ordinary ] || chown 65534 swept
	glob="$dir/swept/*" set=''
	start sweep; order "open $dir/swept/x creat" ok; order 'truncate 4096' ok; order 'map 0' ok; stop; is 0
	rm -r swept
}
left() { # nothing but the files
	sweep
	local l
	l=$(find . -mindepth 1 -not -name t.conf | sort | tr '\n' ' ')
	[ "$l" = "${1:-./a.dat ./b.dat ./sub ./sub/c.dat }" ] || bad "left: $l"
	l=$(find "$runtime" -mindepth 1 -not -name shares)
	[ -z "$l" ] || bad "left in the runtime directory: $l"
}

t_commit() {
	make_files
	claim 'a commit of one is a commit of all, with one journal'
	group one; store one 0; hold xxx 0
	order msync ok; hold one 0
	[ -e .group.txmap ] || bad 'there is no journal .group.txmap'
	order 'file 2' ok; order 'store 4096 two' ok; order 'file 1' ok; order fsync ok; holds sub/c.dat two 4096
	claim 'the command names one of them'
	store three 8192
	txmap commit "$pid" --json; is 0; says '"files":3'; hold three 8192
	store four 8192
	txmap commit --path "$dir/b.dat"; is 0; hold four 8192
	claim 'a discard is of all'
	store lost 0
	txmap discard --path "$dir/b.dat" --json; is 0; says '"files":3'
	order 'load 0 3' one; order 'file 1' ok; order 'load 0 3' one; order 'file 2' ok; order 'load 0 3' one
	claim 'a file that comes later is one of them'
	order 'file 3' ok; order "open $dir/d.dat creat" ok; order 'truncate 8192' ok; order 'map 0' ok; order 'store 0 late' ok
	order 'file 0' ok; order 'store 0 LATE' ok; order 'file 3' ok; order msync ok
	holds a.dat LATE; holds d.dat late
	claim 'the end of use of one commits all; the end leaves nothing behind'
	store last 12288; order 'file 1' ok; order unmap ok; order close ok; hold last 12288
	order 'file 0' ok; order 'store 0 END' ok
	stop; is 0; holds a.dat END
	left './a.dat ./b.dat ./d.dat ./sub ./sub/c.dat '
}

t_killed() {
	make_files
	claim 'uncommitted stores of all are gone, what was committed is there'
	group one; store one 0; order msync ok; store two 0; killed
	run "$txmap" check a.dat b.dat sub/c.dat
	txmap recover "$dir/b.dat"; is 0
	hold one 0
	left
	claim 'killed at any time: all are of one commit, the last that was said to be done or the one under way'
	local ledger=$work/bin/ledger last=0 n round
	glob="$dir/**.led" set=scope=group
	settings
	for round in $(seq "${kills:-12}"); do
		(as env "${vars[@]}" "$ledger" run $((last + 1)) a.led b.led sub/c.led >.acked 2>.ledger_err) &
		sleep "0.$((RANDOM % 250 + 50))"
		kill -9 $! 2>/dev/null; wait $! 2>/dev/null
		[ ! -s .ledger_err ] || bad "ledger said: $(cat .ledger_err)"
		[ ! -s .acked ] || last=$(tail -n 1 .acked)
		if [ $((round % 2)) = 0 ]; then
			txmap recover "$dir/a.led"; is 0
			run "$ledger" check a.led b.led sub/c.led
		else
			under "$ledger" check a.led b.led sub/c.led
		fi
		is 0
		n=$(cat "$work/.out")
		[ "${n:-0}" = "$last" ] || [ "${n:-0}" = $((last + 1)) ] || bad "they are of $n, and $last was acknowledged"
		last=$n
	done
	[ "$last" -gt 20 ] || bad "only $last commits in all"
	rm -f .acked .ledger_err
	left './a.dat ./a.led ./b.dat ./b.led ./sub ./sub/c.dat ./sub/c.led '
}

t_conflict() {
	make_files
	claim 'one that was changed by somebody else keeps all of them from being committed'
	group one; store one 0; order msync ok
	store two 0
	sleep 0.02; printf other | dd of=b.dat bs=1 seek=4096 conv=notrunc status=none
	order msync EBUSY; errs 'b.dat|group'; hold one 0; holds b.dat other 4096
	txmap invalidate --path "$dir/b.dat"; is 0
	order msync ok; holds a.dat two; holds sub/c.dat two; holds b.dat one
	stop; is 0; left
}

t_fork() {
	make_files
	claim 'what a child stored is committed with the rest'
	group one commit=msync; store one 0
	order 'file 1' ok; order fork ok; order 'store 4096 child' ok; order 'file 0' ok; order msync ok
	holds b.dat child 4096; hold one 0
	stop; is 0; left
	claim 'two processes of one user have one overlay of each, and any of them commits all'
	group one; group two; store two 8192
	use one; order 'load 8192 3' two; order msync ok; hold two 8192
	use two; killed; use one; store more 8192; order msync ok; hold more 8192
	stop; is 0; left
}

t_named() {
	make_files
	claim 'a rule gives its name to the journal'
	conf '[rule money]' "path = $dir/**.dat" 'scope = group' "path = !$dir/b.dat"
	glob='' set="config=$dir/t.conf"
	start one; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	order 'file 1' ok; order "open $dir/sub/c.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	[ -e .money.txmap ] || bad "no journal .money.txmap: $(ls -A)"
	holds a.dat one; holds sub/c.dat one
	claim 'another group, or a rule of its own, does not get a file of it'
	conf2=$dir/sub/t.conf
	printf '%s\n' '[rule other]' "path = $dir/*.dat" 'scope = group' >"$conf2"; chmod 644 "$conf2"
	set="config=$conf2"
	start two; order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs 'a.dat'
	stop; use one; stop; is 0
	rm -f "$conf2"; left
}

t_refused() {
	claim 'what does not go with it'
	glob="$dir/*" set='scope=group share=process'; under true; is 78; one_line; errs 'scope = group and share = process.*allowed.*user'
	set='scope=group backend=plugin:/x.so'; under true; is 78; one_line; errs 'scope = group and backend = plugin.*allowed.*file'
	claim 'damaged, it is not guessed at'
	make_files
	group one; store one 0; order msync ok; store two 0; order msync ok; killed
	claim 'a file of it is gone'
	mv b.dat b.gone
	cp a.dat a.before; cp sub/c.dat c.before
	txmap recover "$dir/a.dat"; is 1; one_line; errs 'b\.dat: .*nothing was changed'
	cmp -s a.dat a.before && cmp -s sub/c.dat c.before || bad 'something was changed'
	claim 'or another one has its name'
	make_file b.dat y 64K
	txmap recover "$dir/a.dat"; is 1; one_line; errs 'b\.dat: .*nothing was changed'
	cmp -s a.dat a.before && cmp -s sub/c.dat c.before || bad 'something was changed'
	holds b.dat yyy
	claim 'it is back'
	mv b.gone b.dat
	txmap recover "$dir/a.dat"; is 0; hold two 0
	rm -f a.before c.before; left
	claim 'the journal of the group is lost'
	group one; store three 0; order msync ok; killed
	[ -e .group.txmap ] || bad 'no journal'
	mv .group.txmap elsewhere
	txmap recover "$dir/a.dat"; is 1; one_line; errs 'group'
	set=scope=group; under cat a.dat; errs 'group'
	mv elsewhere .group.txmap
	txmap recover "$dir/a.dat"; is 0; hold three 0
	left
}

t_lost() {
	make_files
	claim 'the journal is removed while they are in use'
	group one; store one 0; order msync ok
	rm .group.txmap
	store two 0; order msync EUCLEAN; errs 'group.txmap: .* was removed: .* on the disk'; hold one 0
	order fsync EUCLEAN; order 'load 0 3' two
	killed; hold one 0
	claim 'and their stubs say so'
	txmap recover "$dir/a.dat"; is 1; errs 'is missing'
	rm .a.dat.txmap .b.dat.txmap sub/.c.dat.txmap
	group one; order 'load 0 3' one; stop; is 0; left
}

t_end() {
	make_files
	claim 'it ends while a thread stores: nothing is left behind'
	local how
	for how in exit term; do
		set=scope=group glob="$dir/**.dat"; settings
		(as env "${vars[@]}" "$work/bin/stream_files" "$how" a.dat b.dat sub/c.dat >/dev/null 2>.err) 2>/dev/null
		[ ! -s .err ] || bad "it said: $(cat .err)"
		rm -f .err; left
	done
	claim 'its commit fails then: said once for each try, and nothing is left behind'
	group one; store one 0; order msync ok; store two 0
	sleep 0.02; printf other | dd of=b.dat bs=1 seek=4096 conv=notrunc status=none
	stop; is 0; errs 'b.dat: commit: .*changed by somebody else'; quiet 'a.dat: commit'; hold one 0
	[ "$(grep -c 'commit:' "$err_from")" -le 4 ] || bad "said too often: $(cat "$err_from")"
	left
}

t_replaced() {
	make_files
	claim 'killed with nothing in the journal, then a file is replaced, or the directory copied: that is no loss'
	group one; killed
	cp a.dat new; mv new a.dat
	txmap check "$dir/a.dat"; is 0; says 'a.dat: clean'
	mkdir there; cp -a ./.[abg]* ./*.dat there; cp -a sub there
	[ "$who" != ordinary ] || chown -R 65534 there a.dat
	group one; store one 0; order msync ok; stop; is 0
	rm -f sub/.c.dat.txmap .b.dat.txmap
	glob="$dir/there/**.dat" set=scope=group
	start one; order "open $dir/there/b.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok; stop; is 0
	holds there/b.dat one
	rm -r there; left
	claim 'their directory gets another name while they are in use'
	mkdir below; [ "$who" != ordinary ] || chown 65534 below
	glob="$dir/below/*.dat" set=scope=group
	start one; order "open $dir/below/x.dat creat" ok; order 'truncate 4096' ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	mv below moved; order 'store 0 two' ok; order msync ok; stop; is 0; silent
	holds moved/x.dat two; [ "$(ls -A moved)" = x.dat ] || bad "left: $(ls -A moved)"
	rm -r moved
	claim 'discarded, a change from outside is no conflict any more'
	group one; store one 0; order msync ok; store two 0
	sleep 0.02; printf other | dd of=b.dat bs=1 seek=4096 conv=notrunc status=none
	order msync EBUSY; txmap discard "$pid"; is 0
	order 'file 1' ok; order 'load 4096 5' other; order 'load 0 3' one; store tre 0; order msync ok; hold tre 0
	stop; is 0; left
}

for t in commit killed conflict fork named refused lost end replaced; do
	[ -z "${only:-}" ] || [ "$only" = $t ] || continue
	each t_$t
done
exit $failed
