#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap status, commit, discard, invalidate: on a running program.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'python3 is not there'; exit 77; }
json() { # EXPRESSION: true of the document d on stdout
	python3 -c 'import json, sys; d = json.load(sys.stdin); assert eval(sys.argv[1]), d' "$1" <"$work/.out" 2>>"$work/.err" ||
		bad "the document is not $1"
}

claim 'with nobody there is nothing to show, and no target'
run "$txmap" status; is 0; errs 'no process'
run "$txmap" status --json; is 0; json 'd == {"ok": True, "processes": []}'
run "$txmap" commit --all; is 3
run "$txmap" commit 1; is 3; errs 'pid 1 '
run "$txmap" status 1; is 3

printf 'old%4093s%4096s' '' '' >a.dat
start a.dat --set commit=none
order 'store new'

claim 'what is stored is not in the file before a commit'
holds a.dat old
run "$txmap" status; is 0; says 'PID +COMM .*PATH'; says "^ *$pid +python3 .* $work/a.dat$"; silent
run "$txmap" status --json "$pid"; is 0
json 'd["ok"] and len(d["processes"]) == 1 and d["processes"][0]["files"][0]["dirty"] == 1'
json "d['processes'][0]['pid'] == $pid and d['processes'][0]['engine'] in ('uffd', 'segv')"
run "$txmap" --json status --path '*.dat'; is 0; json 'len(d["processes"]) == 1'
run "$txmap" status --path '*.nix'; is 3

claim 'commit writes it, durably, and prints the transaction'
run "$txmap" commit "$pid"; is 0; says "^txid 1 +pid $pid +files 1 +pages 1 "; silent
holds a.dat new
order 'store two'
run "$txmap" commit --path a.dat --json; is 0
json "d['ok'] and d['results'][0]['txid'] == 2 and d['results'][0]['pid'] == $pid"
holds a.dat two

claim 'discard brings the last commit back'
order 'store xxx'
run "$txmap" discard --all; is 0; says "pid $pid +files 1"
order 'show'
[ "$answer" = two ] || bad "memory is $answer"
holds a.dat two

claim 'invalidate loads what another program wrote, and nothing does before'
printf 'out' | dd of=a.dat conv=notrunc 2>/dev/null
order 'show'
[ "$answer" = two ] || bad "memory changed by itself to $answer"
run "$txmap" invalidate --path a.dat --offset 4K; is 0
order 'show'
[ "$answer" = two ] || bad "another range was invalidated: $answer"
run "$txmap" invalidate "$pid"; is 0; says "pid $pid"
order 'show'
[ "$answer" = out ] || bad "memory is $answer"

claim 'invalidation beyond the end does nothing and says what'
run "$txmap" invalidate --path a.dat --offset 1G --length 1M
[ "$status" = 0 ] || { is 1; errs 'a.dat'; }

claim 'a target that is not there is status 3'
run "$txmap" commit --path b.dat; is 3; errs 'b.dat'
run "$txmap" commit --path b.dat "$pid"; is 3; errs "pid $pid"
run "$txmap" discard 1; is 3

claim 'wrong usage is status 2'
run "$txmap" commit; is 2; errs 'no TARGET'
run "$txmap" commit --all "$pid"; is 2
run "$txmap" commit x; is 2
run "$txmap" commit -- -1; is 2
run "$txmap" commit --all --offset 1; is 2
run "$txmap" invalidate --all --offset 1X; is 2; errs '1X'
run "$txmap" invalidate --all --length -1; is 2

claim 'a socket left by a killed process is skipped and removed'
sock=$XDG_RUNTIME_DIR/txmap/$pid.sock
[ -S "$sock" ] || bad "$sock is not there"
kill -9 "$pid"; stop 2>/dev/null
[ -S "$sock" ] || bad "$sock went by itself"
run "$txmap" status; is 0
[ ! -e "$sock" ] || bad "$sock is still there"

claim 'a normal exit removes the socket'
start a.dat
order 'store end'
sock=$XDG_RUNTIME_DIR/txmap/$pid.sock
[ -S "$sock" ] || bad "$sock is not there"
stop
[ ! -e "$sock" ] || bad "$sock is still there"
holds a.dat end

claim 'a runtime directory that is open to others gives no socket, a warning, and a program that works'
chmod 755 "$XDG_RUNTIME_DIR/txmap"
start a.dat
order 'store one'
run "$txmap" commit "$pid"; is 3
stop
holds a.dat one
cp program.err .err
errs 'warning: no control socket: .*0755'
chmod 700 "$XDG_RUNTIME_DIR/txmap"

claim 'done for one process and failed for another is status 4'
printf 'old%4093s' '' >b.dat
start b.dat --set commit=none
order 'store new'
first=$pid
exec 5>&7 6<&8
start a.dat --set commit=none
order 'store new'
sleep 0.01 # a file's time moves in steps
printf 'out' | dd of=b.dat conv=notrunc 2>/dev/null
run "$txmap" commit --all; is 4; says "^txid [0-9]+ +pid $pid "; errs "pid $first: $work/b.dat: .*EBUSY"
run "$txmap" commit --path b.dat; is 1
run "$txmap" commit --json --all; is 4; json 'not d["ok"] and len(d["results"]) == 2'
holds a.dat new; holds b.dat out
exec 5>&- 6<&-
kill -9 "$first"
stop

claim 'with control=off there is no socket'
start a.dat --set control=off
order 'store off'
[ ! -e "$XDG_RUNTIME_DIR/txmap/$pid.sock" ] || bad 'there is one'
stop

claim 'stdout that cannot be written to is an error'
run sh -c '"$0" doctor >/dev/full' "$txmap"; is 1; errs 'cannot write'

exit $failed
