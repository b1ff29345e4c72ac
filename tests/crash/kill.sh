#!/bin/bash
# SPDX-License-Identifier: MIT
# Real programs under load, killed with -9 at random moments: afterwards their verifiers find nothing bad, and the
# file is the last commit, byte for byte.
#
#	tests/crash/kill.sh lmdb|gdbm|tdb|rrdtool|sqlite|gawk [KILLS]
#
# How "the last commit" is known without asking txmap:
#
# lmdb, gdbm  The load is deterministic and starts from the same file each time. It runs once natively, with
#	librecord.so writing down the file's hash at each msync and fsync of the program. It prints "ack N" when step
#	N is synced. The killed run got as far as its last "ack A": the file must have the hash of the last sync before
#	that line, or of one after it and before the native run's "ack A+1" (the kill came between a commit
#	and the next line). Anything else is a lost commit, a torn one, or bytes that were never committed.
#
# tdb		The same. But who opens it may have to finish the transaction in it, so `txmap recover` alone comes before the look.
#
# rrdtool	The same, but it never syncs: each update is a commit, at its munmap and close. The native run is fed one update
#		at a time, and the file's hash taken in between.
#
# sqlite	Its journal, or log, is a file of its own. So not the bytes are compared, but what is in the database: all that
#		was acknowledged, at most one more, and its own check finds nothing. Two journal modes by turns.
#
# gawk	It never syncs; commits come from `txmap commit`. It is at rest, waiting for input, when that is
#	sent; once it has returned, the file is copied by a program that knows nothing of txmap. Then it gets work to
#	do and is killed in the midst of it: the file must be that copy. In every other round another commit is under
#	way as well, of a next state at rest: then it must be that copy, or verify as that next state; and the latter for
#	certain when the command said that it was done.
#
# After every other kill `txmap recover` is what looks at the file first, after the others a program under txmap.
set -u
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

kind=$1
kills=${2:-100}
lib_begin "kill-$kind"
filehash=$top/build/tests/crash/filehash
lmdb_load=$top/build/tests/programs/lmdb_load
gdbm_load=$top/tests/programs/src/gdbm_load.py
tdb_load=$top/tests/programs/src/tdb_load.py
sqlite_load=$top/tests/programs/src/sqlite_load.py
base=$work/base
ref=$work/ref
acked=$work/acked
seed=${seed:-$$}
RANDOM=$seed
echo "seed $seed"
bad=0 hits=0 loaded=0 journals=0 old=0 new=0 last=

fail() { # WHAT: count it, show the first ones in full
	bad=$((bad + 1))
	[ $bad -gt 3 ] || echo "round $round, engine=$engine, last ack ${last:-none}: $*"
}
pause_below() { sleep "$(printf '0.%06d' $(((RANDOM * 32768 + RANDOM) % $1)))"; } # MICROSECONDS

start() { # CMD...: under txmap, in the background, as $pid
	(
		cd "$dir" || exit 1
		# shellcheck disable=SC2086 # lib_set is a list of words
		exec env LD_PRELOAD="$so" TXMAP_PATHS="$work/files/**" TXMAP_RUNTIME_DIR="$runtime" \
			TXMAP_ENGINE="$engine" $lib_set ${more:-} "$@" 2>"$work/err"
	) <&0 & # a background job has no input unless told
	pid=$!
}
kill_it() {
	kill -9 $pid
	wait $pid
	[ $? = 137 ] && hits=$((hits + 1))
} 2>/dev/null

has_journal() { ls -A "$dir" | grep -q '\.txmap$'; }
recover() { # CMD...: by the command, or by CMD, which opens the files under txmap and changes nothing
	has_journal && journals=$((journals + 1))
	if [ $((round % 2)) = 0 ] || [ -n "${by_command:-}" ]; then
		TXMAP_RUNTIME_DIR=$runtime "$txmap" recover "$dir"/* >"$work/out" 2>&1 ||
			fail "txmap recover: status $?: $(cat "$work/out")"
	else
		lib_txmap self "$engine" "$@" >"$work/out" 2>&1 || fail "under txmap: status $?: $(cat "$work/out")"
	fi
	has_journal && fail "a journal is left: $(ls -A "$dir" | tr '\n' ' ')"
}

# ---- lmdb, gdbm, tdb, rrdtool: against the recorded native run

record() { # FILE CMD...: the recorded, native run; and that the load is deterministic at all
	local file=$1
	shift
	cp -r "$base" "$work/native"
	(cd "$work/native" && RECORD_FILE=$file LD_PRELOAD=$top/build/tests/crash/librecord.so "$@") >"$ref" ||
		lib_die 'the native run fails'
	grep -q '^commit' "$ref" || lib_die 'the native run syncs nothing'
	cp -r "$base" "$work/again"
	(cd "$work/again" && "$@") >/dev/null
	cmp "$work/native/$file" "$work/again/$file" || lib_die 'the load is not deterministic'
}

expect_recorded() { # FILE: is its hash one of those that the last ack allows?
	local hash
	hash=$("$filehash" "$1")
	last=$(sed -n 's/^ack //p' "$acked" | tail -n 1)
	[ -z "$last" ] || loaded=$((loaded + 1))
	awk -v latest="$base_hash" -v hash="$hash" -v last="${last:-none}" '
		BEGIN { now = "none"; ok = now == last && latest == hash }
		$1 == "commit" { latest = $2 }
		$1 == "ack" { now = $2 }
		now == last && latest == hash { ok = 1 }
		END { exit !ok }' "$ref" ||
		fail "the file is $hash: $(awk -v hash="$hash" '
			$1 == "ack" { at = $2 }
			$2 == hash { print "a commit after ack " at; found = 1; exit }
			END { if (!found) print "this was never committed" }' "$ref")"
}

rounds() { # FILE MICROSECONDS VERIFIER... -- CMD...
	local file=$1 within=$2 verifier=()
	shift 2
	while [ "$1" != -- ]; do verifier+=("$1"); shift; done
	shift
	[ -s "$ref" ] || record "$file" "$@"
	base_hash=$("$filehash" "$base/$file")
	for ((round = 1; hits < kills && round <= 3 * kills; round++)); do
		engine=uffd
		[ $((round / 2 % 2)) = 0 ] || engine=segv
		last=
		lib_dir self x
		cp "$base/$file" "$dir/"
		start "$@" >"$acked"
		pause_below "$within"
		kill_it || continue # it had ended by itself
		recover "${verifier[@]}"
		[ "$kind" != rrdtool ] || rrdtool_acks
		expect_recorded "$dir/$file"
		(cd "$dir" && "${verifier[@]}") >"$work/out" 2>&1 || fail "verifier: $(cat "$work/out")"
	done
}

rrdtool_acks() { awk '/^OK/ { print "ack " n++ + 0 }' "$acked" >"$work/acks" && mv "$work/acks" "$acked"; }
record_rrdtool() { # FILE: of commands
	local n=0 line answer
	cp -r "$base" "$work/native"
	coproc (cd "$work/native" && exec rrdtool -)
	while read -r line; do
		echo "$line" >&"${COPROC[1]}"
		read -r answer <&"${COPROC[0]}"
		[[ $answer == OK* ]] || lib_die "rrdtool says $answer"
		echo "commit $("$filehash" "$work/native/k.rrd")"
		echo "ack $((n++))"
	done <"$1" >"$ref"
	kill $COPROC_PID
}

# ---- sqlite

sqlite_rounds() {
	local mode n
	for ((round = 1; hits < kills && round <= 3 * kills; round++)); do
		engine=uffd
		[ $((round / 2 % 2)) = 0 ] || engine=segv
		mode=delete
		[ $((round / 4 % 2)) = 0 ] || mode=wal
		lib_dir self x
		start /usr/bin/python3 "$sqlite_load" write t.db 100000 $mode >"$acked"
		pause_below 700000
		kill_it || continue
		last=$(sed -n 's/^ack //p' "$acked" | tail -n 1)
		[ -n "$last" ] || continue
		loaded=$((loaded + 1))
		recover /usr/bin/python3 "$sqlite_load" verify t.db
		(cd "$dir" && /usr/bin/python3 "$sqlite_load" verify t.db) >"$work/out" 2>&1 || fail "verifier: $(cat "$work/out")"
		n=$(awk '{ print $2 }' "$work/out")
		[ "$n" = $((last + 1)) ] || [ "$n" = $((last + 2)) ] || fail "$mode: $(cat "$work/out")"
	done
}

# ---- gawk

gawk_check='BEGIN { for (i = 0; i < 2000; i++) bad += x[i] != round ":" i * round; print round, bad + 0 }'
tell() { # ROUND COUNT: give gawk work
	echo "fill $1 $2" >&3
}
until_done() { # ROUND: it is at rest
	local line
	if ! read -r -t 20 -u 4 line || [ "$line" != "done $1" ]; then
		fail "gawk says '${line:-}' instead of 'done $1': $(cat "$work/err")"
		return 1
	fi
}
gawk_rounds() {
	local heap status n line
	lib_dir self x
	heap=$dir/heap
	truncate -s 32M "$heap"
	mkfifo "$work/in" "$work/done"
	exec 3<>"$work/in" 4<>"$work/done"
	# gawk stores into its heap at each start; what merely looks must not commit that.
	lib_set='TXMAP_COMMIT=none GAWK_PERSIST_FILE=heap'
	for ((round = 1; hits < kills && round <= 2 * kills; round++)); do
		engine=uffd
		[ $((round / 4 % 2)) = 0 ] || engine=segv
		n=$((2 * round))
		start gawk -f "$top/tests/crash/gawk_rounds.awk" <"$work/in" >"$work/done"
		tell $n 2000
		until_done $n || { kill_it; break; }
		if ! TXMAP_RUNTIME_DIR=$runtime "$txmap" commit $pid >"$work/out" 2>&1; then
			fail "txmap commit: $(cat "$work/out")"
			kill_it
			break
		fi
		cp "$heap" "$work/copy"
		last=$n
		loaded=$((loaded + 1))
		status=1
		if [ $((round / 2 % 2)) = 0 ]; then
			tell $((n + 1)) 30000
			pause_below 60000
			kill_it
		else
			tell $((n + 1)) 2000
			until_done $((n + 1)) || { kill_it; break; }
			TXMAP_RUNTIME_DIR=$runtime "$txmap" commit $pid >"$work/out" 2>&1 &
			local command=$!
			pause_below 8000
			kill_it
			wait $command
			status=$?
		fi
		while read -r -t 0 -u 4; do read -r -u 4 line; done
		recover gawk "$gawk_check"
		if cmp -s "$heap" "$work/copy"; then
			[ $status != 0 ] || fail 'a commit that the command said was done is lost'
			old=$((old + 1))
		else
			new=$((new + 1))
			[ $((round / 2 % 2)) = 1 ] || fail 'killed in the middle of an update, and the file is not the last commit'
			last=$((n + 1))
		fi
		cp "$heap" "$work/copy"
		line=$(GAWK_PERSIST_FILE=$work/copy gawk "$gawk_check" 2>&1)
		[ "$line" = "$last 0" ] || fail "the heap says '$line', not '$last 0'"
	done
	echo "the file was the commit before $old times, that of the command under way $new times"
}

case $kind in
lmdb)
	mkdir "$base"
	"$lmdb_load" write "$base" w 0 1 $((16 << 20)) >/dev/null
	rm -f "$base/lock.mdb"
	rounds data.mdb 400000 "$lmdb_load" verify . -- "$lmdb_load" write . w 1 1000 $((16 << 20))
	;;
gdbm)
	mkdir "$base"
	/usr/bin/python3 "$gdbm_load" write "$base/k.gdbm" 5 >/dev/null
	rounds k.gdbm 500000 /usr/bin/python3 "$gdbm_load" verify k.gdbm -- /usr/bin/python3 "$gdbm_load" write k.gdbm 2000
	;;
tdb)
	mkdir "$base"
	# So large that it does not grow any more: cut off in the middle of that, tdb is damaged natively, too.
	/usr/bin/python3 "$tdb_load" write "$base/k.tdb" 1000 tx >/dev/null
	by_command=1
	rounds k.tdb 500000 sh -c 'tdbtool k.tdb check | grep "is OK"' -- /usr/bin/python3 "$tdb_load" write k.tdb 300 tx
	;;
rrdtool)
	mkdir "$base"
	rrdtool create "$base/k.rrd" --start 1000000000 --step 60 DS:a:GAUGE:120:U:U RRA:AVERAGE:0.5:1:5000 RRA:MAX:0.5:10:500
	for ((i = 1; i <= 1000; i++)); do echo "update k.rrd $((1000000000 + 60 * i)):$i"; done >"$work/updates"
	chmod a+r "$work/updates"
	record_rrdtool "$work/updates"
	rounds k.rrd 500000 rrdtool info k.rrd -- bash -c "exec rrdtool - <'$work/updates'"
	;;
sqlite) sqlite_rounds ;;
gawk) gawk_rounds ;;
*) lib_die 'usage: kill.sh lmdb|gdbm|tdb|rrdtool|sqlite|gawk [KILLS]' ;;
esac

echo "$kind: $hits killed, $loaded of them after a commit, $journals left a journal; $bad bad"
[ $hits -ge "$kills" ] || lib_die 'too few kills came before the program had ended'
[ $((2 * loaded)) -ge "$kills" ] || lib_die 'most kills came before the first commit: this shows nothing'
exit $((bad > 0))
