#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap recover, check, config, doctor.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'python3 is not there'; exit 77; }
json() { python3 -c 'import json, sys; d = json.load(sys.stdin); assert eval(sys.argv[1]), d' "$1" <"$work/.out" || bad "not $1"; }

claim 'a file without a journal is clean'
printf 'old%4093s' '' >a.dat
run "$txmap" check a.dat; is 0; says "^$work/a.dat: clean"; silent
run "$txmap" recover a.dat; is 0; silent

claim 'a file that is in use is neither clean nor damaged'
start a.dat --set commit=none
order 'store new'
run "$txmap" commit "$pid"; is 0
order 'store xxx'
run "$txmap" check a.dat; is 0; says 'in use'
run "$txmap" recover a.dat; is 1; errs 'in use|EBUSY'

claim 'after kill -9 the file is the last commit, and recover leaves no journal'
kill -9 "$pid"; stop 2>/dev/null
run "$txmap" recover a.dat; is 0
holds a.dat new
[ ! -e .a.dat.txmap ] || bad 'the journal is still there'
run "$txmap" check --json a.dat; is 0; json 'd["ok"] and d["results"][0]["state"] == "clean"'

claim 'what is no journal is left alone, and told'
printf 'garbage that is no journal at all' >.a.dat.txmap
run "$txmap" check a.dat; is 1; errs 'foreign|damaged'
run "$txmap" recover a.dat; is 1
[ -e .a.dat.txmap ] || bad 'it was removed'
holds a.dat new

claim 'some good and some bad is status 4, nothing there is status 3'
cp a.dat b.dat
run "$txmap" check a.dat b.dat; is 4
run "$txmap" check nowhere.dat; is 3; errs 'nowhere.dat.*No such file'
run "$txmap" check b.dat nowhere.dat; is 4
run "$txmap" check; is 2
run "$txmap" recover; is 2

claim 'config tells the value and the origin of each setting'
printf '[defaults]\nload = lazy\n[rule r]\npath = %s/*.dat\nconflict = overwrite\n' "$work" >t.conf
run env TXMAP_ON_ERROR=passthrough "$txmap" config --config t.conf --set log=info --path a.dat; is 0
says "^$work/a.dat: managed by \[rule r\]"
says "^load +lazy +$work/t.conf:2 "; says "^conflict +overwrite +$work/t.conf:5 "
says '^on_error +passthrough +environment '; says '^log +info +command line '; says '^commit +msync,.* builtin '
says "^runtime_dir +$XDG_RUNTIME_DIR/txmap "
run "$txmap" config --config t.conf --path /etc/passwd; is 0; says 'not managed'
run "$txmap" config --json --config t.conf --path a.dat; is 0
json 'd["managed"] and d["rule"] == "r" and d["settings"]["load"]["line"] == 2'
run env TXMAP_LOAD=x "$txmap" config; is 78; errs 'TXMAP_LOAD'

claim 'doctor has a line for each thing, and a fix for what is not well'
run "$txmap" doctor; is 0
for what in kernel engine 'userfaultfd\(2\)' pagemap memfd_create max_map_count RLIMIT_NOFILE 'runtime directory'; do says "(ok|warn) +.*$what"; done
chmod 755 "$XDG_RUNTIME_DIR"; mkdir -m 755 -p "$XDG_RUNTIME_DIR/txmap"; chmod 755 "$XDG_RUNTIME_DIR/txmap"
run "$txmap" doctor --json; is 0
json '[c for c in d["checks"] if c["check"] == "runtime directory"][0]["state"] == "warn"'
json 'all(c["fix"] for c in d["checks"] if c["state"] == "warn")'

exit $failed
